-- Has a group read again what its subscriptions ask for, from a time on ('-infinity': from the first event on); returns how many
-- subscriptions it has. Each catches up with the past as if it were made now and started then: what it gets again matches anew,
-- behind what has matched, so that cursors only go forward, and readers stay. What is still to be read, or failed, stays as it is.
-- Raises PJ081 for a time to come and for a group that only listens, PJ082 where there is no such group.
CREATE OR REPLACE FUNCTION projections.rewind_group_v1(p_group text, p_to timestamptz)
RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _group projections.subscription_groups;
    _ids bigint[];
BEGIN
    SELECT g.* INTO _group FROM projections.subscription_groups AS g WHERE g.name = p_group;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no group %', quote_nullable(p_group) USING ERRCODE = 'PJ082';
    ELSIF NOT _group.reliable THEN
        RAISE EXCEPTION 'group % only listens: it has no place to go back from', quote_literal(p_group) USING ERRCODE = 'PJ081';
    ELSIF (p_to <= clock_timestamp()) IS NOT TRUE THEN
        RAISE EXCEPTION 'a group is rewound to a time in the past, not to %', coalesce(p_to::text, 'NULL') USING ERRCODE = 'PJ081';
    END IF;
    _ids := ARRAY(
        SELECT s.subscription_id FROM projections.subscriptions AS s WHERE s.group_id = _group.group_id ORDER BY s.subscription_id
    );
    PERFORM pg_advisory_xact_lock(hashtext('slice-projections past'), (i.id & 2147483647)::integer) FROM unnest(_ids) AS i (id);
    UPDATE projections.subscriptions AS s SET since = 'infinity', starts_at = greatest(p_to, '1970-01-01T00:00:00Z')
    WHERE s.subscription_id = ANY (_ids);
    DELETE FROM projections.subscription_history AS h WHERE h.subscription_id = ANY (_ids);
    RETURN cardinality(_ids);
END;
$$;
