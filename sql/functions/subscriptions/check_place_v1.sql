-- Makes sure that who remembers a match of a group has seen the database as it is: the match has its number and its time, or
-- was dropped since. Numbers are given out again after a crash, a fail-over or a restore; times are not. Returns TRUE, to be
-- asked in the statement that reads on. Raises PJ013 where the database went back in time.
CREATE OR REPLACE FUNCTION projections.check_place_v1(p_group text, p_match_id bigint, p_matched_at timestamptz)
RETURNS boolean
LANGUAGE plpgsql
VOLATILE -- read_events_by_slices_v1 says why
SET plan_cache_mode = 'force_generic_plan'
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM FROM projections.subscription_groups AS g
    WHERE g.name = p_group AND (
        p_match_id <= g.dropped_until OR EXISTS (
            SELECT FROM projections.matches AS m
            WHERE m.group_id = g.group_id AND m.match_id = p_match_id AND m.matched_at = p_matched_at
        )
    );
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the database went back in time: match % of group %, which was read, is not there any more',
            p_match_id, quote_literal(p_group)
        USING ERRCODE = 'PJ013', HINT = 'Drop what is remembered of the group, and begin again from what the database has.';
    END IF;
    RETURN TRUE;
END;
$$;
