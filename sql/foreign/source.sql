-- A source's events with numbers from $2 to $3, a page at a time; backwards from $3 where $4 is set.
-- Two queries, because an order that depends on a parameter can use no index.
SELECT
    foreign_columns,
    coalesce(e.total >= $6::bigint, FALSE) AS more
FROM (
    SELECT
        e.*,
        sum(e.bytes) OVER (ORDER BY e.step ROWS UNBOUNDED PRECEDING) AS total
    FROM (
        (
            SELECT
                e.*,
                e.seq_nr AS step
            FROM foreign_events AS e
            WHERE
                NOT $4::boolean AND e.source = source_of($1)
                AND e.number BETWEEN number_of($2) AND number_of($3)
            ORDER BY e.number LIMIT $5::integer
        )
        UNION ALL
        (
            SELECT
                e.*,
                -e.seq_nr AS step
            FROM foreign_events AS e
            WHERE
                $4 AND e.source = source_of($1)
                AND e.number BETWEEN number_of($2) AND number_of($3)
            ORDER BY e.number DESC LIMIT $5
        )
    ) AS e
) AS e
WHERE (e.total - e.bytes < $6) IS NOT FALSE
ORDER BY e.step
