-- Has those who have not passed the time of restored events begin there, in the transaction that makes them visible. Their ranges
-- lose their owners, who may have read on already, and start again; what they have handled their offsets tell. Afterwards nobody
-- passes that time until the transaction ends: _pass_restored_v1 must have been called for whoever has, also for those who are new.
-- PJ040: a projection is being rebuilt, or stands within their time and has evicted offsets of it: it would handle some of the events and
-- not the others.
CREATE OR REPLACE FUNCTION projections._read_restored_v1(p_entity_types text[], p_from timestamptz, p_to timestamptz)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _name text;
BEGIN
    -- Nobody makes, cuts or sets back a projection meanwhile, nor begins a rebuild.
    LOCK TABLE projections.projections IN EXCLUSIVE MODE;
    LOCK TABLE projections.rebuilds IN SHARE MODE;
    SELECT p.name INTO _name
    FROM projections.rebuilds AS b INNER JOIN projections.projections AS p ON b.projection_id = p.projection_id
    WHERE b.state IN ('folding', 'verified') AND coalesce(b.entity_types && p_entity_types, TRUE)
    ORDER BY p.name LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'projection % is being rebuilt: events that come back now would be in some of its slices and not in others', _name
        USING ERRCODE = 'PJ040', HINT = format('Restore when the rebuild is done, or end it: projections rebuilds cancel %s', _name);
    END IF;
    -- Of a source without an offset, events older than evicted_before count as handled: some of these events would, and others would not.
    -- A projection that has handled nothing since its offset was set does not want the older ones.
    SELECT p.name INTO _name
    FROM projections.projections AS p
    WHERE p.evicted_before > p_from AND p.journal IS NULL AND coalesce(p.entity_types && p_entity_types, TRUE)
    AND EXISTS (
        SELECT FROM projections.projection_ranges AS r
        WHERE r.projection_id = p.projection_id AND greatest(r.horizon, r.handled_until) < p_to AND r.handled_until >= p.evicted_before
    )
    ORDER BY p.name LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'projection % stands between % and %, and would handle some of the events that come back and leave out others',
            _name, p_from, p_to
        USING ERRCODE = 'PJ040', HINT = format(
            'Restore when it has passed that time: then it handles none of them. To have them in its read model, rebuild it afterwards: '
            'projections rebuild %s', _name
        );
    END IF;
    -- This waits for batches in flight.
    UPDATE projections.projection_ranges AS r
    SET epoch = r.epoch + 1, owner = NULL, horizon = least(r.horizon, p_from)
    FROM projections.projections AS p
    WHERE r.projection_id = p.projection_id AND coalesce(p.entity_types && p_entity_types, TRUE)
    AND greatest(r.horizon, r.handled_until) < p_to;
END;
$$;
