-- A page as that of page.sql, by an index on slice, entity type and place. Near the end of the log all that follows is read, in one
-- pass over the index. Where that is more than 256 events, the next few places of each slice and type are looked up (twice as many as
-- a page of even slices takes), which say up to where the page goes, and then its events are read. It may have fewer than it
-- could ("cut"), but has one if there is one. What is used twice is looked up once: hence MATERIALIZED.
WITH tail AS MATERIALIZED (
    SELECT e.*
    FROM foreign_events AS e
    WHERE
        e.entity_type = any(coalesce($1::text[], array(SELECT t.entity_type FROM foreign_types AS t)))
        AND e.slice = any(array(SELECT s.slice FROM generate_series($2::integer, $3::integer) AS s (slice)))
        AND e.place >= place_of($4)
        AND e.place <= place_of($8)
        AND (e.place, e.slice, e.source_id, e.seq_nr) > (place_of($4), $5::integer, $6::text, $7::bigint)
    LIMIT 257 -- noqa: AM09
),

bound AS MATERIALIZED (
    SELECT
        coalesce(
            (
                SELECT h.place
                FROM (
                    SELECT
                        h.place,
                        row_number() OVER (ORDER BY h.place) AS n,
                        count(*) OVER () AS total,
                        bool_or(h.is_last) OVER () AS goes_on
                    FROM unnest(coalesce($1, array(SELECT t.entity_type FROM foreign_types AS t))) AS t (entity_type)
                    CROSS JOIN generate_series($2::integer, $3::integer) AS s (slice)
                    CROSS JOIN LATERAL (
                        SELECT
                            e.place,
                            row_number() OVER (ORDER BY e.place) = greatest(4, 2 * $9::integer / ($3 - $2 + 1)) AS is_last
                        FROM (
                            SELECT e.place
                            FROM foreign_events AS e
                            WHERE
                                e.entity_type = t.entity_type
                                AND e.slice = s.slice
                                AND e.place >= place_of($4)
                                AND e.place <= place_of($8)
                                AND (e.place, e.slice, e.source_id, e.seq_nr) > (place_of($4), $5, $6, $7)
                            ORDER BY e.place
                            LIMIT greatest(4, 2 * $9 / ($3 - $2 + 1))
                        ) AS e
                    ) AS h
                ) AS h
                WHERE h.n = least($9, h.total) AND (h.total >= $9 OR h.goes_on)
            ),
            place_of($8)
        ) AS place
),

page AS (
    SELECT
        e.*,
        (SELECT b.place FROM bound AS b) < place_of($8) AS cut
    FROM unnest(coalesce($1, array(SELECT t.entity_type FROM foreign_types AS t))) AS t (entity_type)
    CROSS JOIN generate_series($2::integer, $3::integer) AS s (slice)
    CROSS JOIN
        LATERAL (
            SELECT *
            FROM foreign_events AS e
            WHERE
                e.entity_type = t.entity_type
                AND e.slice = s.slice
                AND e.place >= place_of($4)
                AND e.place <= (SELECT b.place FROM bound AS b)
                AND (e.place, e.slice, e.source_id, e.seq_nr) > (place_of($4), $5, $6, $7)
            ORDER BY e.place, e.slice, e.source_id, e.seq_nr
            LIMIT $9
        ) AS e
)

SELECT
    e.*,
    FALSE AS cut
FROM tail AS e
WHERE (SELECT count(*) FROM tail) <= 256
UNION ALL
SELECT e.*
FROM page AS e
WHERE (SELECT count(*) FROM tail) > 256
ORDER BY place, slice, source_id, seq_nr
LIMIT $9
