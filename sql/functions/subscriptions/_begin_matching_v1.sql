-- Registers the projection that matches the events of all entity types, for those who want to run it; returns its id. A new one
-- begins where the oldest subscription does: what was committed before is for none of them.
CREATE OR REPLACE FUNCTION projections._begin_matching_v1(p_min_slices integer[] DEFAULT '{0}')
RETURNS integer
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _id integer;
    _since timestamptz;
BEGIN
    SELECT p.projection_id INTO _id FROM projections.projections AS p WHERE p.name = 'matching';
    IF FOUND THEN
        RETURN _id;
    END IF;
    _id := projections.register_projection_v1('matching', NULL, p_min_slices);
    -- Before the subscriptions are looked at: one that commits later is for what commits later still.
    _since := projections._in_flight_since_v1();
    -- Somebody else may just have begun it: only what never ran is set.
    UPDATE projections.projection_ranges AS r
    SET horizon = least((SELECT min(s.since) FROM projections.subscriptions AS s), _since)
    WHERE r.projection_id = _id AND r.epoch = 0 AND r.horizon = '1970-01-01T00:00:00Z';
    -- What was imported before is not for them either.
    UPDATE projections.projection_ranges AS r
    SET import_id = (SELECT coalesce(max(i.import_id), 0) FROM projections.imports AS i)
    WHERE r.projection_id = _id AND r.epoch = 0;
    RETURN _id;
END;
$$;
