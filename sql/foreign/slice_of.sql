-- The slice of a source as one expression (projections.slice_of_v1, where nothing is installed): each UTF-16 unit times a power of
-- 31, by 32 bits. Of a short id in ASCII that is one sum, foreign_sum, over its bytes with zeros in front, which add nothing; of
-- others each power is a product of two, from foreign_high and foreign_low. An id that is too long for a source is in slice 0.
SELECT abs(CASE WHEN h.hash > 2147483647 THEN h.hash - 4294967296 ELSE h.hash END % 1024)::integer
FROM (
    SELECT
        (CASE
            WHEN octet_length(s.id) = char_length(s.id) AND octet_length(s.id) <= foreign_short
                THEN (
                    SELECT foreign_sum
                    FROM (
                        SELECT
                            decode(repeat('00', foreign_short - octet_length(s.id)), 'hex')
                            || convert_to(s.id, 'UTF8') AS bytes
                        LIMIT 1 -- noqa: AM09
                    ) AS b
                )
            WHEN char_length(s.id) <= 255
                THEN (
                    SELECT sum(u.code * ((foreign_high[1 + u.place / 7] * foreign_low[1 + u.place % 7]) & 4294967295))::bigint
                    FROM (
                        SELECT
                            c.code::bigint AS code,
                            (row_number() OVER (ORDER BY c.ordinal DESC, c.half DESC) - 1)::integer AS place
                        FROM (
                            SELECT
                                x.ordinal,
                                half.half,
                                CASE
                                    WHEN ascii(x.character) <= 65535 THEN ascii(x.character)
                                    WHEN half.half = 1 THEN 55296 + ((ascii(x.character) - 65536) >> 10)
                                    ELSE 56320 + ((ascii(x.character) - 65536) & 1023)
                                END AS code
                            FROM unnest(string_to_array(s.id, NULL)) WITH ORDINALITY AS x (character, ordinal)
                            CROSS JOIN generate_series(1, 2) AS half (half)
                            WHERE half.half = 1 OR ascii(x.character) > 65535
                        ) AS c
                    ) AS u
                )
            ELSE 0
        END) & 4294967295 AS hash
    FROM (SELECT foreign_source AS id) AS s
    LIMIT 1 -- noqa: AM09
) AS h
