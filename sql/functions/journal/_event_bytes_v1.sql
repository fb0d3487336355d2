-- How many bytes an event takes of a page, about: its JSON as it is stored, 16 times that where it is compressed, and half a KiB
-- for all else. What is compressed would have to be unpacked to know better, and a page is bounded before that: JSON seldom
-- compresses to less than a tenth; at worst pglz makes a 90th of it, lz4 a 255th.
-- Inlined, for it runs for each row that is read; an integer, for a sum of bigint is numeric, and that takes long.
CREATE OR REPLACE FUNCTION projections._event_bytes_v1(p_payload json, p_metadata json)
RETURNS integer
LANGUAGE sql
STABLE
AS $$
    SELECT
        512
        + coalesce(pg_catalog.pg_column_size(p_payload), 0)
        * CASE WHEN pg_catalog.pg_column_compression(p_payload) IS NULL THEN 1 ELSE 16 END
        + coalesce(pg_catalog.pg_column_size(p_metadata), 0)
        * CASE WHEN pg_catalog.pg_column_compression(p_metadata) IS NULL THEN 1 ELSE 16 END
$$;
