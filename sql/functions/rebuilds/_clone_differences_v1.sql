-- What of a table its clone lacks, or has in another way, by name: what _clone_table_v1 does not copy. Foreign keys are for the end.
CREATE OR REPLACE FUNCTION projections._clone_differences_v1(p_table regclass, p_clone regclass)
RETURNS text[]
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(array_agg(found.reason ORDER BY found.reason COLLATE "C"), '{}')
    FROM (
        SELECT
            CASE
                WHEN c.part IS NULL THEN format('%s would be lost', t.part)
                WHEN t.part IS NULL THEN format('%s would be new', c.part)
                ELSE format('%s of the %s would be %s, not %s', k.key, t.part, c.facts ->> k.key, t.facts ->> k.key)
            END AS reason
        FROM projections._table_facts_v1(p_table) AS t
        FULL JOIN projections._table_facts_v1(p_clone) AS c ON t.part = c.part
        LEFT JOIN LATERAL jsonb_object_keys(t.facts || c.facts) AS k (key) ON t.facts -> k.key IS DISTINCT FROM c.facts -> k.key
        WHERE NOT starts_with(coalesce(t.part, c.part), 'foreign key')
        AND (k.key IS NOT NULL OR t.part IS NULL OR c.part IS NULL)
    ) AS found
$$;
