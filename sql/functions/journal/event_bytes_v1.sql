-- How many bytes an event takes of a page, about: its JSON as it is sent, and half a KiB for all else.
-- Only what is compressed has to be unpacked for it. Inlined, for it runs for each row that is read.
CREATE OR REPLACE FUNCTION projections.event_bytes_v1(p_payload json, p_metadata json)
RETURNS bigint
LANGUAGE sql
STABLE
AS $$
    SELECT
        512::bigint + coalesce(
            CASE
                WHEN pg_catalog.pg_column_compression(p_payload) IS NULL THEN pg_catalog.pg_column_size(p_payload)
                ELSE pg_catalog.octet_length(p_payload::text)
            END, 0
        ) + coalesce(
            CASE
                WHEN pg_catalog.pg_column_compression(p_metadata) IS NULL THEN pg_catalog.pg_column_size(p_metadata)
                ELSE pg_catalog.octet_length(p_metadata::text)
            END, 0
        )
$$;
