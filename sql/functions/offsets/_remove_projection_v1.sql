-- Removes a projection, or of one that reads several journals the part that reads one: its ranges and offsets, its parked sources, and
-- what is known of its rebuilds; returns how many of each there were, and no row where there is none of this number. Its read model is
-- left as it is. It holds no partition any more. Raises PJ022 while a worker that is alive runs it, unless p_force: that one says that it
-- is gone and handles nothing more of it. Raises PJ040 while a rebuild of it is unfinished, or the tables that one has replaced are there.
CREATE OR REPLACE FUNCTION projections._remove_projection_v1(p_projection_id integer, p_force boolean DEFAULT FALSE)
RETURNS TABLE (ranges bigint, sources bigint, parked bigint, rebuilds bigint)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    _name text;
    _schema text;
    _workers text;
BEGIN
    PERFORM projections._lock_inline_v1(p_projection_id);
    SELECT projections._part_name_v1(p.name, p.journal) INTO _name
    FROM projections.projections AS p WHERE p.projection_id = p_projection_id FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT string_agg(w.owner, ', ' ORDER BY w.owner) INTO _workers
    FROM projections.workers AS w WHERE p_projection_id = ANY (w.projection_ids) AND w.lease_until > clock_timestamp();
    IF _workers IS NOT NULL AND NOT p_force THEN
        RAISE EXCEPTION 'projection % is run by %: stop these workers, or start them without it', quote_literal(_name), _workers
        USING ERRCODE = 'PJ022';
    END IF;
    SELECT n.nspname INTO _schema
    FROM projections.rebuilds AS b
    INNER JOIN pg_catalog.pg_namespace AS n
        ON n.nspname IN ('projections_rebuild_' || b.rebuild_id, 'projections_old_' || b.rebuild_id)
    WHERE b.projection_id = p_projection_id
    ORDER BY n.nspname LIMIT 1;
    IF FOUND OR EXISTS (
        SELECT FROM projections.rebuilds AS b WHERE b.projection_id = p_projection_id AND b.state IN ('folding', 'verified')
    ) THEN
        RAISE EXCEPTION 'a rebuild of projection % is unfinished, or has left tables behind%: end it by projections rebuilds '
            'cancel NAME, or drop them by projections rebuilds drop-old NAME', quote_literal(_name), coalesce(' in the schema ' || _schema, '')
        USING ERRCODE = 'PJ040';
    END IF;
    SELECT
        (SELECT count(*) FROM projections.projection_ranges AS r WHERE r.projection_id = p_projection_id),
        (SELECT count(*) FROM projections.parked_sources AS k WHERE k.projection_id = p_projection_id),
        (SELECT count(*) FROM projections.rebuilds AS b WHERE b.projection_id = p_projection_id)
    INTO ranges, parked, rebuilds;
    -- Waits for batches in flight, which hold their ranges: what they have stored is seen by the statement after it.
    DELETE FROM projections.range_changes AS c WHERE c.projection_id = p_projection_id;
    DELETE FROM projections.projections AS p WHERE p.projection_id = p_projection_id;
    DELETE FROM projections.source_offsets AS o WHERE o.projection_id = p_projection_id;
    GET DIAGNOSTICS sources = ROW_COUNT;
    RETURN NEXT;
END;
$$;
