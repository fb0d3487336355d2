-- What of the server and of the role decides whether late commits can be found.
SELECT
    quote_ident(current_user) AS role,
    current_setting('server_encoding') AS encoding,
    current_setting('track_activities') AS tracked,
    pg_has_role(current_user, 'pg_read_all_stats', 'USAGE') AS sees_all,
    pg_is_in_recovery() AS is_standby,
    array(
        SELECT coalesce(r.rolname, 'every role') || ' in ' || coalesce(d.datname, 'every database')
        FROM pg_catalog.pg_db_role_setting AS s
        LEFT JOIN pg_catalog.pg_database AS d ON s.setdatabase = d.oid
        LEFT JOIN pg_catalog.pg_roles AS r ON s.setrole = r.oid
        WHERE (s.setdatabase = 0 OR d.datname = current_database()) AND 'track_activities=off' = any(s.setconfig)
    ) AS untracked
