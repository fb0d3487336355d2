-- Keeps a batch that a handler failed on, with its events: to be handled again after p_delay, or, where that is NULL, dead.
-- p_matches are the rows that were read, as a JSON array of objects. Failing on the same batch again changes its row.
-- Given with p_min_slice and p_epoch it is kept only while that range is held: what a reader that was late has failed on is
-- somebody else's by now; p_own_range names one that is a handler's own.
-- With p_owner, p_stored, p_place and p_matched_at it is kept only where the database has the matches
-- that were read, as for move_cursor_v1.
--
-- Raises PJ081 for an empty batch, PJ082 when there is no such group, PJ010 when the range is not held, PJ013 when the database
-- went back in time.
CREATE OR REPLACE FUNCTION projections.fail_batch_v1(
    p_group text,
    p_handler text,
    p_attempts integer,
    p_error text,
    p_delay interval,
    p_matches text,
    p_min_slice integer DEFAULT NULL,
    p_epoch bigint DEFAULT NULL,
    p_owner text DEFAULT NULL,
    p_stored bigint DEFAULT NULL,
    p_place bigint DEFAULT NULL,
    p_matched_at timestamptz DEFAULT NULL,
    p_own_range integer DEFAULT NULL
)
RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _group integer;
    _batch record;
    _id bigint;
BEGIN
    SELECT g.group_id INTO _group FROM projections.subscription_groups AS g WHERE g.name = p_group;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no group %: subscribe for it, or create it first', quote_literal(p_group) USING ERRCODE = 'PJ082';
    END IF;
    IF p_epoch IS NOT NULL THEN
        PERFORM FROM projections.group_ranges AS r
        WHERE r.group_id = _group AND r.min_slice = p_min_slice AND r.epoch = p_epoch
        AND r.handler_id IS NOT DISTINCT FROM p_own_range FOR SHARE;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'the slices of group % from % on are no longer held with epoch %',
                quote_literal(p_group), p_min_slice, p_epoch USING ERRCODE = 'PJ010';
        END IF;
        IF p_owner IS NOT NULL THEN
            PERFORM projections.check_group_range_v1(
                p_group, p_min_slice, p_epoch, p_owner, p_stored, p_place, p_matched_at, p_own_range
            );
        END IF;
    END IF;
    SELECT min(m.id) AS first, max(m.id) AS last, sha256(convert_to(string_agg(concat_ws(' ', m.id, m.event_id), ' ' ORDER BY m.id), 'UTF8')) AS digest
    INTO _batch
    FROM (
        SELECT (j.match ->> 'match_id')::bigint AS id, j.match ->> 'event_id' AS event_id
        FROM json_array_elements(p_matches::json) AS j (match)
    ) AS m;
    IF _batch.first IS NULL THEN
        RAISE EXCEPTION 'a batch has matches' USING ERRCODE = 'PJ081';
    END IF;
    INSERT INTO projections.group_retries AS r (
        group_id, handler, first_match_id, last_match_id, attempts, error, due_at, matches, digest
    )
    VALUES (
        _group, p_handler, _batch.first, _batch.last, p_attempts, left(p_error, 2000), clock_timestamp() + p_delay,
        p_matches::json, _batch.digest
    )
    ON CONFLICT (group_id, handler, digest) DO UPDATE
    SET attempts = excluded.attempts, error = excluded.error, due_at = excluded.due_at, failed_at = clock_timestamp()
    RETURNING r.retry_id INTO _id;
    RETURN _id;
END;
$$;
