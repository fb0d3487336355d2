-- A page of events that ends with the one with which they take $10 bytes, if it does.
SELECT
    foreign_columns,
    coalesce(e.total >= $10::bigint, FALSE) OR e.cut AS more
FROM (
    SELECT
        e.*,
        sum(e.bytes) OVER (ORDER BY e.place, e.slice, e.source_id, e.seq_nr ROWS UNBOUNDED PRECEDING) AS total
    FROM foreign_page AS e
) AS e
WHERE (e.total - e.bytes < $10) IS NOT FALSE
ORDER BY e.place, e.slice, e.source_id, e.seq_nr
