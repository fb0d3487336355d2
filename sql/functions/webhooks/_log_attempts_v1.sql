-- Writes attempts to the delivery log, in the caller's transaction. Of one that the log has, by its id, the outcome is written
-- again: status, code, response and the time that it took; an id of another tenant stays as it is. Of an id that is given
-- twice, the last counts. Ids are locked in their order, so that two of these do not wait for each other.
CREATE OR REPLACE FUNCTION projections._log_attempts_v1(
    p_attempt_ids text[], p_tenants text[], p_event_ids text[], p_event_times timestamptz[], p_topics text[],
    p_endpoint_ids text[], p_endpoint_types text[], p_numbers integer[], p_manual boolean[], p_statuses text[],
    p_times timestamptz[], p_codes text[], p_responses text[], p_took interval[]
)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    _given bigint;
    _added text[];
BEGIN
    WITH given AS (
        SELECT DISTINCT ON (g.attempt_id COLLATE "C") g.*
        FROM unnest(
            p_attempt_ids, p_tenants, p_event_ids, p_event_times, p_topics, p_endpoint_ids, p_endpoint_types, p_numbers, p_manual,
            p_statuses, p_times, p_codes, p_responses, p_took
        ) WITH ORDINALITY AS g (
            attempt_id, tenant, event_id, event_time, topic, endpoint_id, endpoint_type, attempt_number, manual,
            status, attempted_at, code, response, took, place
        )
        ORDER BY g.attempt_id COLLATE "C", g.place DESC
    ), added AS (
        INSERT INTO projections.webhook_log_ids (id, kind, row_time)
        SELECT g.attempt_id, 'attempt', g.attempted_at FROM given AS g ORDER BY g.attempt_id COLLATE "C"
        ON CONFLICT (id, kind) DO NOTHING
        RETURNING id
    ), inserted AS (
        INSERT INTO projections.webhook_attempts (
            attempt_id, tenant, event_id, event_time, topic, endpoint_id, endpoint_type, attempt_number, manual,
            status, attempted_at, code, response, took
        )
        SELECT
            g.attempt_id, g.tenant, g.event_id, g.event_time, g.topic, g.endpoint_id, g.endpoint_type, g.attempt_number, g.manual,
            g.status, g.attempted_at, g.code, g.response, g.took
        FROM given AS g INNER JOIN added AS a ON g.attempt_id = a.id
    )
    SELECT (SELECT count(*) FROM given), ARRAY(SELECT a.id FROM added AS a) INTO _given, _added;

    -- A statement of its own: what another transaction has written of the ids meanwhile must be seen.
    IF cardinality(_added) < _given THEN
        UPDATE projections.webhook_attempts AS w
        SET status = g.status, code = g.code, response = g.response, took = g.took
        FROM (
            SELECT DISTINCT ON (u.attempt_id COLLATE "C") u.*, i.row_time
            FROM unnest(p_attempt_ids, p_tenants, p_statuses, p_codes, p_responses, p_took)
            WITH ORDINALITY AS u (attempt_id, tenant, status, code, response, took, place)
            CROSS JOIN LATERAL (
                SELECT i.row_time FROM projections.webhook_log_ids AS i WHERE i.id = u.attempt_id AND i.kind = 'attempt' LIMIT 1
            ) AS i
            WHERE u.attempt_id <> ALL (_added)
            ORDER BY u.attempt_id COLLATE "C", u.place DESC
        ) AS g
        WHERE w.attempted_at = g.row_time AND w.attempt_id = g.attempt_id AND w.tenant = g.tenant;
    END IF;
END;
$$;
