-- Gives a range of a group back, so that the next reader need not wait for the lease; nothing if it is another's by now.
CREATE OR REPLACE FUNCTION projections.release_group_range_v1(
    p_group text, p_min_slice integer, p_epoch bigint, p_owner text DEFAULT NULL, p_handler integer DEFAULT NULL
)
RETURNS void
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    UPDATE projections.group_ranges AS r SET owner = NULL
    FROM projections.subscription_groups AS g
    WHERE g.name = p_group AND r.group_id = g.group_id AND r.min_slice = p_min_slice AND r.epoch = p_epoch
    AND r.handler_id IS NOT DISTINCT FROM p_handler
    AND (p_owner IS NULL OR r.owner = p_owner)
$$;
