-- Takes projections from whoever runs them, without waiting for a lease to end. A worker that is alive all the same
-- loses what it has in flight, joins again and gets its share.
CREATE OR REPLACE FUNCTION projections.take_over_v1(p_owner text, p_projection_ids integer[])
RETURNS void
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    UPDATE projections.workers AS w
    SET projection_ids = ARRAY(SELECT k.id FROM unnest(w.projection_ids) AS k (id) WHERE k.id <> ALL(p_projection_ids))
    WHERE w.owner <> p_owner AND w.projection_ids && p_projection_ids;
    UPDATE projections.projection_ranges AS r SET epoch = r.epoch + 1, owner = NULL, assigned_to = p_owner
    WHERE r.projection_id = ANY(p_projection_ids);
$$;
