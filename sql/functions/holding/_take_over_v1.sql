-- Takes projections from whoever runs them, without waiting for a lease to end. A worker that is alive all the same
-- loses what it has in flight, joins again and gets its share. One that runs another version stays as it is.
CREATE OR REPLACE FUNCTION projections._take_over_v1(p_owner text, p_projection_ids integer[], p_versions integer[])
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _ids CONSTANT integer[] := ARRAY(
        SELECT p.projection_id FROM projections.projections AS p
        INNER JOIN unnest(p_projection_ids, p_versions) AS v (id, version) ON p.projection_id = v.id AND p.version = v.version
    );
BEGIN
    UPDATE projections.workers AS w
    SET projection_ids = ARRAY(SELECT k.id FROM unnest(w.projection_ids) AS k (id) WHERE k.id <> ALL(_ids))
    WHERE w.owner <> p_owner AND w.projection_ids && _ids;
    UPDATE projections.projection_ranges AS r SET epoch = r.epoch + 1, owner = NULL, assigned_to = p_owner
    WHERE r.projection_id = ANY(_ids);
    PERFORM projections._note_range_change_v1(r.projection_id, 'taken by order', r.ranges, NULL, NULL, p_owner)
    FROM (
        SELECT r.projection_id, count(*)::integer AS ranges FROM projections.projection_ranges AS r
        WHERE r.projection_id = ANY(_ids) GROUP BY r.projection_id
    ) AS r;
END;
$$;
