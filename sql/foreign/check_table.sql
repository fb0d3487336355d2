-- What kind of table it is: whether the lock that its writers take is one that is looked at, and whether its rows are written here.
SELECT
    c.relkind::text AS kind,
    c.relispartition AS is_partition,
    c.relkind = 'r' AND c.oid IN (SELECT i.inhparent FROM pg_catalog.pg_inherits AS i) AS has_children,
    c.oid IN (SELECT s.srrelid FROM pg_catalog.pg_subscription_rel AS s) AS is_replicated,
    c.relrowsecurity AS has_policies
FROM pg_catalog.pg_class AS c
WHERE c.oid = to_regclass($1::text)
