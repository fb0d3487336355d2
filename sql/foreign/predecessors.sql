-- When the event before a given one was written, from $3 on and not after $4: those of one transaction may have one time.
SELECT
    k.source_id,
    k.seq_nr,
    time_of(e.place) AS db_timestamp
FROM unnest($1::text[], $2::bigint[]) AS k (source_id, seq_nr)
CROSS JOIN LATERAL (
    SELECT e.place FROM foreign_events AS e
    WHERE
        e.source = source_of(k.source_id) AND e.number = number_of(k.seq_nr - 1)
        AND e.place >= place_of($3) AND e.place <= place_of($4)
    LIMIT 1 -- noqa: AM09
) AS e
