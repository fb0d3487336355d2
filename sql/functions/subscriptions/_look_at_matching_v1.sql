-- What there is to do alongside the matching of the log, in one look: whoever matches asks it every second.
CREATE OR REPLACE FUNCTION projections._look_at_matching_v1()
RETURNS TABLE (
    -- Whether the projection that matches is registered.
    begun boolean,
    -- Whether conditions are still to be checked by this version of the schema.
    unchecked boolean,
    -- Whether a published event is due.
    due boolean,
    -- Whether events wait to be asked about.
    behind boolean,
    -- Whether a subscription catches up with the past.
    history boolean
)
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    -- Once: a condition with a clock in it would walk the whole index.
    _now CONSTANT timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY SELECT
        EXISTS (SELECT FROM projections.projections AS p WHERE p.name = 'matching'),
        EXISTS (
            SELECT FROM projections.conditions AS c
            WHERE c.checked < (SELECT max(v.version) FROM projections.schema_versions AS v)
        ),
        EXISTS (SELECT FROM projections.directed_events AS d WHERE NOT d.matched AND d.not_before <= _now),
        EXISTS (SELECT FROM projections.unanswered AS u WHERE u.due) OR EXISTS (SELECT FROM projections.unasked),
        EXISTS (SELECT FROM projections.subscriptions AS s WHERE s.starts_at IS NOT NULL);
END;
$$;
