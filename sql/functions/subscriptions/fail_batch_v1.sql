-- Keeps a batch that a handler failed on, with its events: to be handled again after p_delay, or, where that is NULL, dead.
-- p_matches are the rows that were read, as JSON. Failing on the same batch again changes its row.
CREATE OR REPLACE FUNCTION projections.fail_batch_v1(
    p_group text,
    p_handler text,
    p_first_match_id bigint,
    p_last_match_id bigint,
    p_attempts integer,
    p_error text,
    p_delay interval,
    p_matches text
)
RETURNS bigint
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    INSERT INTO projections.group_retries AS r (
        group_id, handler, first_match_id, last_match_id, attempts, error, due_at, matches
    )
    SELECT
        g.group_id, p_handler, p_first_match_id, p_last_match_id, p_attempts, left(p_error, 2000),
        clock_timestamp() + p_delay, p_matches::json
    FROM projections.subscription_groups AS g WHERE g.name = p_group
    ON CONFLICT (group_id, handler, first_match_id, last_match_id) DO UPDATE
    SET attempts = excluded.attempts, error = excluded.error, due_at = excluded.due_at, failed_at = clock_timestamp()
    RETURNING r.retry_id
$$;
