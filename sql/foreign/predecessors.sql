-- When the event before a given one was written, from $3 on. That may be after the event itself, and after $4: of two transactions, the
-- one that began first may have written last.
SELECT
    k.source_id,
    k.seq_nr,
    time_of(e.place) AS db_timestamp
FROM unnest($1::text[], $2::bigint[]) AS k (source_id, seq_nr)
CROSS JOIN LATERAL (
    SELECT e.place FROM foreign_events AS e
    WHERE
        e.source = source_of(k.source_id) AND e.number = number_of(k.seq_nr - 1)
        AND e.place >= place_of($3) AND $4::timestamptz IS NOT NULL
    LIMIT 1 -- noqa: AM09
) AS e
