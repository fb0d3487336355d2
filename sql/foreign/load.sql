-- The events of given keys, in the order of the log, each looked up. A page is bounded as that of events.sql.
SELECT
    foreign_columns,
    coalesce(e.total >= $4::bigint, FALSE) AS more
FROM (
    SELECT
        e.*,
        sum(e.bytes) OVER (ORDER BY e.place, e.slice, e.source_id, e.seq_nr ROWS UNBOUNDED PRECEDING) AS total
    FROM unnest($1::text[], $2::bigint[], $3::timestamptz[]) AS k (source_id, seq_nr, db_timestamp)
    CROSS JOIN LATERAL (
        SELECT * FROM foreign_events AS e
        WHERE e.source = source_of(k.source_id) AND e.number = number_of(k.seq_nr) AND e.place = place_of(k.db_timestamp)
        LIMIT 1 -- noqa: AM09
    ) AS e
) AS e
WHERE (e.total - e.bytes < $4) IS NOT FALSE
ORDER BY e.place, e.slice, e.source_id, e.seq_nr
