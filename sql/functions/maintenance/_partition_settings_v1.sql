-- The statements that give another table what LIKE leaves out: owner, tablespace, storage options, comment and grants.
CREATE OR REPLACE FUNCTION projections._partition_settings_v1(p_partition oid, p_other text)
RETURNS SETOF text
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT format('ALTER TABLE projections.%I ', p_other) || s.change
    FROM pg_catalog.pg_class AS c
    LEFT JOIN pg_catalog.pg_tablespace AS t ON c.reltablespace = t.oid
    CROSS JOIN LATERAL (
        VALUES
        ('OWNER TO ' || quote_ident(pg_get_userbyid(c.relowner))),
        ('SET TABLESPACE ' || quote_ident(t.spcname)),
        ('SET (' || array_to_string(c.reloptions, ', ') || ')')
    ) AS s (change)
    WHERE c.oid = p_partition AND s.change IS NOT NULL
    UNION ALL
    SELECT format('COMMENT ON TABLE projections.%I IS %L', p_other, obj_description(p_partition, 'pg_class'))
    UNION ALL
    SELECT format(
        'GRANT %s ON projections.%I TO %s%s', a.privilege_type, p_other,
        CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END,
        CASE WHEN a.is_grantable AND a.grantee <> c.relowner THEN ' WITH GRANT OPTION' ELSE '' END
    )
    FROM pg_catalog.pg_class AS c CROSS JOIN aclexplode(c.relacl) AS a
    WHERE c.oid = p_partition
$$;
