-- Notes with which match a partition ends that is about to be dropped: a group whose cursor lies before cannot tell by itself
-- that something is missing. Returns how many groups. It runs under the locks of _drop_partition_v1: a look at the newest match of
-- each group, however many there are.
CREATE OR REPLACE FUNCTION projections._hook_drop_subscriptions_v1(p_partition projections.partitions)
RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    _last bigint;
    _groups bigint := 0;
BEGIN
    IF p_partition.table_name = 'matches' THEN
        EXECUTE format(
            'SELECT max(m.match_id) FROM projections.subscription_groups AS g CROSS JOIN LATERAL ('
            'SELECT m.match_id FROM %s AS m WHERE m.group_id = g.group_id ORDER BY m.match_id DESC LIMIT 1) AS m',
            p_partition.relation::regclass
        ) INTO _last;
        UPDATE projections.subscription_groups AS g SET dropped_until = _last WHERE g.dropped_until < _last;
        GET DIAGNOSTICS _groups = ROW_COUNT;
    END IF;
    RETURN _groups;
END;
$$;
