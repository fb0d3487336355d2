-- Leaves a group: its ranges are free at once.
CREATE OR REPLACE FUNCTION projections.leave_group_v1(p_group text, p_owner text)
RETURNS void
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    UPDATE projections.group_ranges AS r SET owner = NULL
    FROM projections.subscription_groups AS g
    WHERE g.name = p_group AND r.group_id = g.group_id AND r.owner = p_owner;
    DELETE FROM projections.group_readers AS r
    USING projections.subscription_groups AS g
    WHERE g.name = p_group AND r.group_id = g.group_id AND r.owner = p_owner
$$;
