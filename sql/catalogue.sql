-- What the schema named by the setting projections.described consists of, and the one of its conditions: a row for each
-- thing, with its definition as PostgreSQL prints it. Run it with an empty search_path, so that all names are printed in full.
--
-- What comes and goes is to look like its model: a time partition like the default partition of its table, and the function
-- of a condition like any other. Their rows say which of them it is, and the rest as the model's own rows do.
-- noqa: disable=AL03
WITH
described AS (
    SELECT
        n.oid,
        n.nspname,
        n.nspowner,
        n.nspacl
    FROM pg_catalog.pg_namespace AS n
    WHERE n.nspname IN (current_setting('projections.described'), current_setting('projections.described') || '_conditions')
),

-- Who is to own everything.
owner AS (
    SELECT c.relowner AS oid FROM pg_catalog.pg_class AS c
    WHERE c.oid = to_regclass(format('%I.schema_versions', current_setting('projections.described')))
),

-- Wherever they are: a partition may have been attached from elsewhere.
partitions AS (
    SELECT
        i.inhrelid AS oid,
        p.relname AS parent,
        d.relname AS default_name,
        i.inhrelid = t.partdefid AS is_default
    FROM pg_catalog.pg_partitioned_table AS t
    INNER JOIN pg_catalog.pg_class AS p ON t.partrelid = p.oid
    INNER JOIN described AS n ON p.relnamespace = n.oid
    INNER JOIN pg_catalog.pg_inherits AS i ON t.partrelid = i.inhparent
    LEFT JOIN pg_catalog.pg_class AS d ON t.partdefid = d.oid
),

relations AS (
    SELECT
        c.*,
        CASE WHEN p.oid IS NULL THEN c.relname ELSE coalesce(p.default_name, p.parent || '_default') END AS shown,
        p.parent AS model,
        CASE WHEN NOT p.is_default THEN c.relname END AS member
    FROM pg_catalog.pg_class AS c
    LEFT JOIN partitions AS p ON c.oid = p.oid
    WHERE
        (c.relnamespace IN (SELECT d.oid FROM described AS d) OR p.oid IS NOT NULL)
        AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
        -- A partition that is being put in slice order.
        AND (c.relispartition OR c.relkind <> 'r' OR NOT EXISTS (
            SELECT FROM partitions AS f WHERE c.relname = 'events_copy_of_' || f.oid
        ))
),

functions AS (
    SELECT
        p.*,
        p.oid::regprocedure::text AS shown,
        CASE WHEN p.proname ~ '^condition_[0-9]+$' AND d.nspname LIKE '%\_conditions' THEN 'conditions' END AS model
    FROM pg_catalog.pg_proc AS p INNER JOIN described AS d ON p.pronamespace = d.oid
),

acls AS (
    SELECT
        NULL AS model,
        NULL AS member,
        'schema' || replace(replace(d.nspname, current_setting('projections.described'), ''), '_', ' ') AS what,
        d.nspowner AS owner,
        coalesce(d.nspacl, acldefault('n', d.nspowner)) AS acl
    FROM described AS d
    UNION ALL
    SELECT
        c.model,
        c.member,
        CASE c.relkind WHEN 'S' THEN 'sequence ' ELSE 'table ' END || c.shown,
        c.relowner,
        coalesce(c.relacl, CASE c.relkind WHEN 'S' THEN acldefault('s', c.relowner) ELSE acldefault('r', c.relowner) END)
    FROM relations AS c
    UNION ALL
    SELECT
        c.model,
        c.member,
        'column ' || c.shown || '.' || a.attname,
        c.relowner,
        a.attacl
    FROM relations AS c INNER JOIN pg_catalog.pg_attribute AS a ON c.oid = a.attrelid
    WHERE a.attacl IS NOT NULL AND NOT a.attisdropped
    UNION ALL
    SELECT
        p.model,
        CASE WHEN p.model IS NOT NULL THEN p.proname END,
        coalesce('function ' || CASE WHEN p.model IS NULL THEN p.shown END, 'function'),
        p.proowner,
        coalesce(p.proacl, acldefault('f', p.proowner))
    FROM functions AS p
),

-- The schema's own roles. Which roles of the user's have what is the user's.
roles AS (
    SELECT r.* FROM pg_catalog.pg_roles AS r
    WHERE r.rolname IN ('projections_reader', 'projections_writer', 'projections_worker', 'projections_matcher')
),

things AS (
    SELECT
        NULL AS model,
        NULL AS member,
        'schema ' || d.nspname AS name,
        CASE WHEN d.nspowner <> o.oid THEN 'OWNER ' || d.nspowner::regrole ELSE '' END AS definition
    FROM described AS d CROSS JOIN owner AS o
    UNION ALL
    SELECT
        c.model,
        c.member,
        CASE c.relkind WHEN 'S' THEN 'sequence ' ELSE 'table ' END || c.shown,
        concat_ws(
            ' ', 'kind', c.relkind, 'persistence', c.relpersistence, 'identity', c.relreplident,
            'row security', c.relrowsecurity, CASE WHEN c.relforcerowsecurity THEN 'FORCED' END,
            pg_get_partkeydef(c.oid),
            array(SELECT o.option FROM unnest(c.reloptions) AS o (option) ORDER BY o.option),
            (SELECT 'TOAST ' || t.reloptions::text FROM pg_catalog.pg_class AS t WHERE t.oid = c.reltoastrelid),
            'OWNER ' || nullif(c.relowner, o.oid)::regrole,
            'USING ' || (SELECT m.amname FROM pg_catalog.pg_am AS m WHERE m.oid = c.relam AND m.amname <> 'heap'),
            -- Old partitions may lie on other disks.
            (SELECT 'TABLESPACE ' || t.spcname FROM pg_catalog.pg_tablespace AS t WHERE t.oid = c.reltablespace AND c.model IS NULL),
            'IN ' || (
                SELECT n.nspname FROM pg_catalog.pg_namespace AS n
                WHERE n.oid = c.relnamespace AND n.oid NOT IN (SELECT d.oid FROM described AS d)
            ),
            (
                SELECT 'INHERITS ' || string_agg(i.inhparent::regclass::text, ', ' ORDER BY i.inhseqno)
                FROM pg_catalog.pg_inherits AS i WHERE i.inhrelid = c.oid AND NOT c.relispartition
            ),
            (
                SELECT 'INHERITED BY ' || string_agg(h.oid::regclass::text, ', ' ORDER BY h.oid)
                FROM pg_catalog.pg_inherits AS i INNER JOIN pg_catalog.pg_class AS h ON i.inhrelid = h.oid
                WHERE i.inhparent = c.oid AND NOT h.relispartition
            ),
            (
                SELECT
                    concat_ws(
                        ' ', format_type(s.seqtypid, NULL), s.seqmin, s.seqmax, s.seqstart, s.seqincrement, s.seqcache, s.seqcycle
                    )
                FROM pg_catalog.pg_sequence AS s WHERE s.seqrelid = c.oid
            )
        )
    FROM relations AS c CROSS JOIN owner AS o
    UNION ALL
    SELECT
        NULL,
        NULL,
        'view ' || c.relname,
        -- PostgreSQL 16 and later do not print of which table a column is where there is but one.
        CASE WHEN v.alias IS NULL THEN v.text ELSE regexp_replace(v.text, '\m' || v.alias || '\.', '', 'g') END
    FROM relations AS c
    CROSS JOIN
        LATERAL (
            SELECT
                pg_get_viewdef(c.oid) AS text,
                substring(pg_get_viewdef(c.oid) FROM ' FROM [^ ]+ (\w+);$') AS alias
        ) AS v
    WHERE c.relkind IN ('v', 'm')
    UNION ALL
    SELECT
        c.model,
        c.member,
        'column ' || c.shown || '.' || a.attname,
        concat_ws(
            ' ', row_number() OVER (PARTITION BY c.oid ORDER BY a.attnum), format_type(a.atttypid, a.atttypmod),
            'COLLATE ' || nullif(a.attcollation, 0)::regcollation::text,
            CASE WHEN a.attnotnull THEN 'NOT NULL' END,
            'DEFAULT ' || pg_get_expr(f.adbin, f.adrelid),
            'IDENTITY ' || nullif(a.attidentity::text, ''), 'GENERATED ' || nullif(a.attgenerated::text, ''),
            'STATISTICS ' || nullif(a.attstattarget, -1), 
            -- By lz4, and arrays not at all, depends on what the server was built with: functions/storage.sql.
            'COMPRESSION ' || nullif(nullif(a.attcompression::text, ''), 'l'),
            CASE
                WHEN a.attstorage <> t.typstorage AND NOT (t.typcategory = 'A' AND a.attstorage = 'e') THEN 'STORAGE ' || a.attstorage::text
            END,
            -- Some servers keep options of their own there, such as pg_attver of Debian's 15.
            (SELECT array_agg(o.option)::text FROM unnest(a.attoptions) AS o (option) WHERE NOT starts_with(o.option, 'pg_'))
        )
    FROM relations AS c
    INNER JOIN pg_catalog.pg_attribute AS a ON c.oid = a.attrelid AND a.attnum > 0 AND NOT a.attisdropped
    INNER JOIN pg_catalog.pg_type AS t ON a.atttypid = t.oid
    LEFT JOIN pg_catalog.pg_attrdef AS f ON a.attrelid = f.adrelid AND a.attnum = f.adnum
    WHERE c.relkind <> 'S'
    UNION ALL
    -- Since PostgreSQL 18 NOT NULL is listed here too: the columns show it, unless somebody has left it unchecked.
    SELECT
        c.model,
        c.member,
        'constraint ' || c.shown || '.' || coalesce(p.conname, k.conname),
        pg_get_constraintdef(k.oid) || CASE WHEN k.convalidated THEN '' ELSE ' NOT VALID' END
    FROM relations AS c
    INNER JOIN pg_catalog.pg_constraint AS k ON c.oid = k.conrelid
    LEFT JOIN pg_catalog.pg_constraint AS p ON k.conparentid = p.oid
    WHERE k.contype NOT IN ('n', 't') OR (k.contype = 'n' AND NOT k.convalidated)
    UNION ALL
    SELECT
        c.model,
        c.member,
        'index ' || CASE
            WHEN c.model IS NULL THEN i.indexrelid::regclass::text
            ELSE c.shown || '.' || coalesce(h.inhparent, i.indexrelid)::regclass
        END,
        concat_ws(
            ' ',
            CASE WHEN c.model IS NULL THEN pg_get_indexdef(i.indexrelid) ELSE regexp_replace(
                pg_get_indexdef(i.indexrelid), '^(CREATE (?:UNIQUE )?INDEX ).*? USING ', '\1USING '
            ) END,
            o.reloptions::text,
            CASE WHEN NOT (i.indisvalid AND i.indisready AND i.indislive) THEN 'INVALID' END,
            CASE WHEN i.indisclustered THEN 'CLUSTER' END, CASE WHEN i.indisreplident THEN 'REPLICA IDENTITY' END,
            (SELECT 'TABLESPACE ' || t.spcname FROM pg_catalog.pg_tablespace AS t WHERE t.oid = o.reltablespace AND c.model IS NULL),
            (
                SELECT 'STATISTICS ' || string_agg(a.attnum || ' ' || a.attstattarget, ', ' ORDER BY a.attnum)
                FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = o.oid AND a.attstattarget >= 0
            )
        )
    FROM relations AS c
    INNER JOIN pg_catalog.pg_index AS i ON c.oid = i.indrelid
    INNER JOIN pg_catalog.pg_class AS o ON i.indexrelid = o.oid
    LEFT JOIN pg_catalog.pg_inherits AS h ON i.indexrelid = h.inhrelid
    -- The one of a partition in slice order.
    WHERE NOT (c.model = 'events' AND pg_get_indexdef(i.indexrelid) LIKE '% USING brin (entity_type, slice)%')
    UNION ALL
    SELECT
        c.model,
        c.member,
        'trigger ' || c.shown || '.' || t.tgname,
        concat_ws(' ', pg_get_triggerdef(t.oid), 'ENABLED ' || nullif(t.tgenabled::text, 'O'))
    FROM relations AS c INNER JOIN pg_catalog.pg_trigger AS t ON c.oid = t.tgrelid
    WHERE NOT t.tgisinternal
    UNION ALL
    -- Those that keep foreign keys; their names are numbers.
    SELECT DISTINCT
        c.model,
        c.member,
        'trigger ' || c.shown || '.' || k.conname,
        'ENABLED ' || t.tgenabled::text
    FROM relations AS c
    INNER JOIN pg_catalog.pg_trigger AS t ON c.oid = t.tgrelid
    LEFT JOIN pg_catalog.pg_constraint AS k ON t.tgconstraint = k.oid
    WHERE t.tgisinternal AND t.tgenabled <> 'O'
    UNION ALL
    SELECT
        c.model,
        c.member,
        'rule ' || c.shown || '.' || r.rulename,
        concat_ws(
            ' ', CASE WHEN r.rulename <> '_RETURN' THEN pg_get_ruledef(r.oid) END, 'ENABLED ' || nullif(r.ev_enabled::text, 'O')
        )
    FROM relations AS c INNER JOIN pg_catalog.pg_rewrite AS r ON c.oid = r.ev_class
    UNION ALL
    SELECT
        c.model,
        c.member,
        'policy ' || c.shown || '.' || p.polname,
        concat_ws(
            ' ', p.polcmd, p.polpermissive, p.polroles::regrole[]::text, pg_get_expr(p.polqual, p.polrelid),
            pg_get_expr(p.polwithcheck, p.polrelid)
        )
    FROM relations AS c INNER JOIN pg_catalog.pg_policy AS p ON c.oid = p.polrelid
    UNION ALL
    SELECT
        p.model,
        CASE WHEN p.model IS NOT NULL THEN p.proname END,
        coalesce('function ' || CASE WHEN p.model IS NULL THEN p.shown END, 'function'),
        CASE
            WHEN p.prokind = 'a' THEN 'aggregate'
            -- As it is stored: which quotes PostgreSQL prints depends on the text of the condition.
            WHEN p.model IS NOT NULL THEN split_part(pg_get_functiondef(p.oid), E'\nAS $', 1) || p.prosrc
            ELSE pg_get_functiondef(p.oid)
        END
        || coalesce(' OWNER ' || nullif(p.proowner, o.oid)::regrole, '')
    FROM functions AS p CROSS JOIN owner AS o
    UNION ALL
    SELECT
        c.model,
        c.member,
        'statistics ' || x.stxnamespace::regnamespace || '.' || x.stxname,
        concat_ws(' ', pg_get_statisticsobjdef(x.oid), nullif(x.stxstattarget, -1))
    FROM relations AS c INNER JOIN pg_catalog.pg_statistic_ext AS x ON c.oid = x.stxrelid
    UNION ALL
    -- Anything else in the schema: types, operators, text search.
    SELECT
        NULL,
        NULL,
        pg_describe_object(x.classid, x.objid, 0),
        ''
    FROM pg_catalog.pg_depend AS x INNER JOIN described AS d ON x.refclassid = 'pg_namespace'::regclass AND x.refobjid = d.oid
    WHERE x.classid NOT IN ('pg_class'::regclass, 'pg_proc'::regclass, 'pg_default_acl'::regclass, 'pg_statistic_ext'::regclass)
    UNION ALL
    SELECT
        NULL,
        NULL,
        pg_describe_object('pg_cast'::regclass, k.oid, 0),
        k.castcontext::text
    FROM pg_catalog.pg_cast AS k
    INNER JOIN pg_catalog.pg_type AS t ON t.oid IN (k.castsource, k.casttarget)
    WHERE t.typnamespace IN (SELECT d.oid FROM described AS d)
    UNION ALL
    SELECT
        a.model,
        a.member,
        'grant on ' || a.what || ' to ' || coalesce(r.rolname, CASE x.grantee WHEN 0 THEN 'PUBLIC' ELSE 'the owner' END),
        string_agg(
            x.privilege_type || CASE WHEN x.is_grantable AND x.grantee <> a.owner THEN ' with grant option' ELSE '' END,
            ', ' ORDER BY x.privilege_type
        )
    FROM acls AS a
    CROSS JOIN LATERAL aclexplode(a.acl) AS x
    LEFT JOIN roles AS r ON x.grantee = r.oid
    -- PostgreSQL 17 gives owners one more. What a partition shows, its table shows.
    WHERE
        (x.grantee IN (0, a.owner) OR r.oid IS NOT NULL) AND NOT (x.grantee = a.owner AND x.privilege_type = 'MAINTAIN')
        AND NOT (
            a.model IS NOT NULL AND x.privilege_type = 'SELECT' AND coalesce(r.rolname, 'projections_matcher') <> 'projections_matcher'
        )
    GROUP BY a.model, a.member, a.what, r.rolname, x.grantee
    UNION ALL
    SELECT
        NULL,
        NULL,
        'default privileges of ' || p.defaclrole::regrole || ' for ' || p.defaclobjtype::text || ' '
        || CASE WHEN p.defaclnamespace = 0 THEN 'everywhere' ELSE 'in the schema' END,
        p.defaclacl::text
    FROM pg_catalog.pg_default_acl AS p
    WHERE p.defaclnamespace IN (SELECT d.oid FROM described AS d)
    UNION ALL
    -- Roles are the server's, so they are the same for every schema: all that can be said of them is what is not to be.
    SELECT
        NULL,
        NULL,
        'role ' || r.rolname || ' ' || x.what,
        ''
    FROM roles AS r
    CROSS JOIN
        LATERAL (
            VALUES
            (r.rolsuper, 'is a superuser'), (r.rolcreaterole, 'may create roles'), (r.rolcreatedb, 'may create databases'),
            (r.rolcanlogin, 'may log in'), (r.rolreplication, 'may replicate'), (r.rolbypassrls, 'bypasses row security'),
            (EXISTS (SELECT FROM pg_catalog.pg_db_role_setting AS s WHERE s.setrole = r.oid), 'has settings of its own')
        ) AS x (is_so, what)
    WHERE x.is_so AND current_setting('projections.described') = 'projections'
    UNION ALL
    -- Where none could be created, none are missing.
    SELECT
        NULL,
        NULL,
        'role ' || n.name || ' does not exist',
        ''
    FROM unnest(ARRAY['projections_reader', 'projections_writer', 'projections_worker', 'projections_matcher']) AS n (name)
    LEFT JOIN roles AS r ON n.name = r.rolname
    WHERE
        r.oid IS NULL AND (SELECT count(*) FROM roles) > 0
        AND current_setting('projections.described') = 'projections'
    UNION ALL
    SELECT
        NULL,
        NULL,
        'role ' || r.rolname || ' is a member of ' || m.roleid::regrole,
        ''
    FROM roles AS r INNER JOIN pg_catalog.pg_auth_members AS m ON r.oid = m.member
    WHERE current_setting('projections.described') = 'projections'
    UNION ALL
    SELECT
        NULL,
        NULL,
        'default privileges of '
        || p.defaclrole::regrole
        || ' give '
        || r.rolname
        || ' '
        || x.privilege_type
        || ' on '
        || p.defaclobjtype::text,
        ''
    FROM pg_catalog.pg_default_acl AS p
    CROSS JOIN LATERAL aclexplode(p.defaclacl) AS x
    INNER JOIN roles AS r ON x.grantee = r.oid
    WHERE p.defaclnamespace = 0 AND current_setting('projections.described') = 'projections'
)

SELECT
    t.model,
    t.member,
    t.name,
    t.definition
FROM things AS t
