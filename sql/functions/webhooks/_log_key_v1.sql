-- By what a page of the log of a kind, 'event' or 'attempt', is walked: a query of the keys, how many there are, and the condition on
-- one. Rows that are named are looked up, and share nothing: their number is 0. Else by tenant first, so that a page looks at nothing
-- of others; by tenant and topic, where there are not too many pairs.
CREATE OR REPLACE FUNCTION projections._log_key_v1(
    p_kind text, p_named text[], p_tenants text[], p_topics text[], OUT keys text, OUT number integer, OUT condition text
)
LANGUAGE sql
IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT
        CASE
            WHEN p_named IS NOT NULL THEN format(
                'SELECT n.a, i.row_time AS b FROM (SELECT DISTINCT unnest(%L::text[])) AS n (a) CROSS JOIN LATERAL ('
                'SELECT i.row_time FROM projections.webhook_log_ids AS i WHERE i.id = n.a AND i.kind = %L LIMIT 1) AS i', p_named, p_kind
            )
            WHEN k.by_pair THEN format('SELECT a.a, b.b FROM unnest(%L::text[]) AS a (a), unnest(%L::text[]) AS b (b)', p_tenants, p_topics)
            WHEN coalesce(p_tenants, p_topics) IS NULL THEN 'SELECT 1'
            ELSE format('SELECT a.a FROM unnest(%L::text[]) AS a (a)', coalesce(p_tenants, p_topics))
        END,
        CASE
            WHEN p_named IS NOT NULL THEN 0
            WHEN k.by_pair THEN cardinality(p_tenants) * cardinality(p_topics)
            ELSE coalesce(cardinality(coalesce(p_tenants, p_topics)), 1)
        END,
        CASE
            WHEN p_named IS NOT NULL THEN
                CASE p_kind WHEN 'event' THEN 'r.event_time = v.b AND r.event_id = v.a' ELSE 'r.attempted_at = v.b AND r.attempt_id = v.a' END
            WHEN k.by_pair THEN 'r.tenant = v.a AND r.topic = v.b'
            WHEN p_tenants IS NOT NULL THEN 'r.tenant = v.a'
            WHEN p_topics IS NOT NULL THEN 'r.topic = v.a'
        END
    FROM (SELECT coalesce(cardinality(p_tenants) * cardinality(p_topics) <= 100, FALSE) AS by_pair) AS k
$$;
