-- Which slices of the projections of some types have passed a time, also those that an import has set back since: they have
-- handled later events. Those that have passed none are left out.
CREATE OR REPLACE FUNCTION projections._passed_ranges_v1(p_entity_types text[], p_to timestamptz)
RETURNS TABLE (projection_id integer, entity_type text, slices int4multirange)
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
SELECT p.projection_id, t.entity_type, range_agg(int4range(r.min_slice, r.max_slice, '[]'))
FROM projections.projections AS p
INNER JOIN unnest(p_entity_types) AS t (entity_type) ON coalesce(t.entity_type = ANY (p.entity_types), TRUE)
INNER JOIN projections.projection_ranges AS r ON p.projection_id = r.projection_id
WHERE greatest(r.horizon, r.handled_until) >= p_to
GROUP BY p.projection_id, t.entity_type
ORDER BY p.projection_id, t.entity_type;
$$;
