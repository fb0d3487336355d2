-- Lets others do with a clone what they may do with its table, and no more: default privileges may have given it others.
CREATE OR REPLACE FUNCTION projections._copy_grants_v1(p_table regclass, p_clone regclass)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _statement text;
BEGIN
    FOR _statement IN
        SELECT DISTINCT format('REVOKE ALL ON %s FROM %s', p_clone, v.name)
        FROM pg_class AS c CROSS JOIN LATERAL aclexplode(c.relacl) AS g
        CROSS JOIN LATERAL (SELECT CASE WHEN g.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(g.grantee)) END) AS v (name)
        WHERE c.oid = p_clone AND g.grantee <> c.relowner
        UNION ALL
        -- An owner may have revoked some of its own rights.
        SELECT format('REVOKE ALL ON %s FROM %I', p_clone, pg_get_userbyid(c.relowner)) FROM pg_class AS c
        WHERE c.oid = p_table AND c.relacl IS NOT NULL
    LOOP
        EXECUTE _statement;
    END LOOP;
    FOR _statement IN
        SELECT format(
            'GRANT %s%s ON %s TO %s%s', g.privilege_type, g.columns, p_clone,
            CASE WHEN g.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(g.grantee)) END,
            CASE WHEN g.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END
        )
        FROM (
            SELECT g.grantee, g.privilege_type, g.is_grantable, '' AS columns
            FROM pg_class AS c CROSS JOIN LATERAL aclexplode(c.relacl) AS g
            WHERE c.oid = p_table
            UNION ALL
            SELECT g.grantee, g.privilege_type, g.is_grantable, format(' (%I)', a.attname) AS columns
            FROM pg_attribute AS a CROSS JOIN LATERAL aclexplode(a.attacl) AS g
            WHERE a.attrelid = p_table AND NOT a.attisdropped
        ) AS g
    LOOP
        EXECUTE _statement;
    END LOOP;
END;
$$;
