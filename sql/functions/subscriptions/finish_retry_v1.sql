-- Stores the outcome of a batch that take_retries_v1 gave out: without an error it is removed, with one it is handled again after
-- p_delay, or, where that is NULL, dead. p_taken_until is what came with the batch. Returns whether it was still so: if not,
-- another has taken it since, somebody has decided, or the database went back in time, and nothing is stored.
CREATE OR REPLACE FUNCTION projections.finish_retry_v1(
    p_retry_id bigint,
    p_taken_until timestamptz,
    p_attempts integer DEFAULT NULL,
    p_error text DEFAULT NULL,
    p_delay interval DEFAULT NULL
)
RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF p_error IS NULL THEN
        DELETE FROM projections.group_retries AS r WHERE r.retry_id = p_retry_id AND r.due_at = p_taken_until;
    ELSE
        UPDATE projections.group_retries AS r
        SET
            attempts = p_attempts, error = left(p_error, 2000), due_at = clock_timestamp() + p_delay,
            failed_at = clock_timestamp()
        WHERE r.retry_id = p_retry_id AND r.due_at = p_taken_until;
    END IF;
    RETURN FOUND;
END;
$$;
