-- The statements that make a partition's indexes on another table, each named index_copy_of_<oid of the original>.
-- The index by slices, which a partition has that is clustered already, is not among them.
CREATE OR REPLACE FUNCTION projections._partition_indexes_v1(p_partition oid, p_other text)
RETURNS SETOF text
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
SET standard_conforming_strings = on
AS $$
    SELECT
        CASE
            WHEN k.oid IS NOT NULL
                THEN format(
                    'ALTER TABLE projections.%I ADD CONSTRAINT index_copy_of_%s %s',
                    p_other, i.indexrelid, pg_get_constraintdef(k.oid)
                )
            ELSE regexp_replace(
                pg_get_indexdef(i.indexrelid),
                '^(CREATE (?:UNIQUE )?INDEX ).*? ON (?:ONLY )?projections\.(?:"(?:[^"]|"")*"|[^ "]+) USING ',
                format('\1index_copy_of_%s ON projections.%I USING ', i.indexrelid, p_other)
            )
        END
    FROM pg_catalog.pg_index AS i
    LEFT JOIN pg_catalog.pg_constraint AS k ON i.indexrelid = k.conindid AND k.contype IN ('p', 'u', 'x')
    WHERE i.indrelid = p_partition AND pg_get_indexdef(i.indexrelid) NOT LIKE '% USING brin (entity_type, slice)%'
    ORDER BY i.indexrelid
$$;
