-- Has a group read again what its subscriptions ask for, from a time on ('-infinity': from the first event on); returns how many
-- subscriptions it has. Each catches up with the past as if it were made now and started then: what it gets again matches again,
-- behind what has matched, so that cursors only go forward, and readers stay. What is still to be read, or failed, stays as it is.
-- One that has not had everything before that time yet goes on from where it is. Raises PJ081 for a time to come, for a group that
-- only listens, and where older events wait for a condition of the group; PJ082 where there is no such group.
CREATE OR REPLACE FUNCTION projections.rewind_group_v1(p_group text, p_to timestamptz)
RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _group projections.subscription_groups;
    _ids bigint[];
    _waiting timestamptz;
    _due timestamptz;
BEGIN
    SELECT g.* INTO _group FROM projections.subscription_groups AS g WHERE g.name = p_group;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no group %: subscribe for it, or create it first', quote_nullable(p_group) USING ERRCODE = 'PJ082';
    ELSIF NOT _group.reliable THEN
        RAISE EXCEPTION 'group % only listens: it has no place to go back from', quote_literal(p_group) USING ERRCODE = 'PJ081';
    ELSIF (p_to <= clock_timestamp()) IS NOT TRUE THEN
        RAISE EXCEPTION 'a group is rewound to a time in the past, not to %', coalesce(p_to::text, 'NULL') USING ERRCODE = 'PJ081';
    END IF;
    _ids := ARRAY(
        SELECT s.subscription_id FROM projections.subscriptions AS s WHERE s.group_id = _group.group_id ORDER BY s.subscription_id
    );
    PERFORM pg_advisory_xact_lock(hashtext('slice-projections past'), (i.id & 2147483647)::integer) FROM unnest(_ids) AS i (id);
    -- Nothing is matched meanwhile: what is looked at below stays so.
    PERFORM pg_advisory_xact_lock(hashtext('slice-projections history'), 0);
    SELECT least(min(u.since), min(f.db_timestamp)) INTO _waiting
    FROM projections.conditions AS c
    LEFT JOIN projections.unasked AS u ON c.condition_id = ANY (u.condition_ids) AND u.page_id >= c.unasked_from
    LEFT JOIN projections.unanswered AS f ON c.condition_id = f.condition_id AND coalesce(f.subscription_id = ANY (_ids), TRUE)
    WHERE c.condition_id IN (SELECT s.condition_id FROM projections.subscriptions AS s WHERE s.subscription_id = ANY (_ids));
    IF _waiting < p_to THEN
        RAISE EXCEPTION 'events from % on wait for a condition of group %, which would pass over them', _waiting, quote_literal(p_group)
        USING ERRCODE = 'PJ081', HINT = 'See projections subscriptions waiting list: have them asked again or drop them, or rewind to '
            'that time or an earlier one.';
    END IF;
    -- What is due and not matched yet is not history: it comes to those who start before it was due.
    SELECT coalesce(min(greatest(d.not_before, d.db_timestamp)), 'infinity') INTO _due
    FROM projections.directed_events AS d WHERE NOT d.matched AND d.not_before <= p_to;
    UPDATE projections.subscriptions AS s
    SET since = 'infinity', starts_at = greatest('1970-01-01T00:00:00Z', least(
        p_to, greatest(_due, coalesce(s.starts_at, s.since)),
        coalesce((SELECT h.db_timestamp FROM projections.subscription_history AS h WHERE h.subscription_id = s.subscription_id), s.starts_at),
        -- What the matching of the log has not passed yet, of what is for it.
        CASE WHEN s.starts_at IS NULL THEN greatest(s.since, (
            SELECT min(least(r.horizon, (
                SELECT min(i.from_timestamp) FROM projections.imports AS i
                WHERE i.import_id > r.import_id AND coalesce(i.entity_type = ANY (s.entity_types), TRUE)
            )))
            FROM projections.projections AS p INNER JOIN projections.projection_ranges AS r ON p.projection_id = r.projection_id
            WHERE p.name = 'matching'
        )) END
    ))
    WHERE s.subscription_id = ANY (_ids);
    DELETE FROM projections.subscription_history AS h WHERE h.subscription_id = ANY (_ids);
    RETURN cardinality(_ids);
END;
$$;
