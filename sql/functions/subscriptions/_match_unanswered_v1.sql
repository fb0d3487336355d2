-- Asks a condition again about events that it has failed on, those of _next_unanswered_v1 that are still to be asked about, and writes what
-- matches; returns how many events those were. Nothing where somebody else is at it, or where the condition is stopped. p_error:
-- it is known to fail on them, and why. An event that it fails on stays, with the error.
CREATE OR REPLACE FUNCTION projections._match_unanswered_v1(p_condition_id integer, p_unanswered_ids bigint[], p_error text DEFAULT NULL)
RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    _taken projections.unanswered[];
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtext('slice-projections unanswered'), p_condition_id) THEN
        RETURN 0;
    END IF;
    -- Others may have worked some off meanwhile, or given them up.
    SELECT coalesce(array_agg(t::projections.unanswered ORDER BY t.unanswered_id), '{}') INTO _taken
    FROM (
        SELECT u.* FROM projections.unanswered AS u
        WHERE u.condition_id = p_condition_id AND u.due AND u.unanswered_id = ANY (p_unanswered_ids)
        AND NOT EXISTS (
            SELECT FROM projections.conditions AS c WHERE c.condition_id = p_condition_id AND c.quarantined_at IS NOT NULL
        )
        ORDER BY u.unanswered_id FOR UPDATE OF u
    ) AS t;
    IF cardinality(_taken) = 0 THEN
        RETURN 0;
    END IF;
    UPDATE projections.unanswered AS u SET due = FALSE, error = NULL
    WHERE u.unanswered_id = ANY (ARRAY(SELECT t.unanswered_id FROM unnest(_taken) AS t));
    PERFORM projections._match_events_v1(
        ARRAY(
            SELECT (t.source_id, t.seq_nr, t.db_timestamp, t.slice, t.topic, t.as_of, t.subscription_id, t.entity_type)::projections.events_to_match
            FROM unnest(_taken) AS t
            -- Somebody may have dropped it with its partition, by force.
            CROSS JOIN LATERAL (
                SELECT FROM projections.events AS e
                WHERE e.source_id = t.source_id AND e.seq_nr = t.seq_nr AND e.db_timestamp = t.db_timestamp LIMIT 1
            ) AS e
        ),
        p_failed => jsonb_build_object(p_condition_id, p_error), p_behind => p_condition_id
    );
    DELETE FROM projections.unanswered AS u
    WHERE u.unanswered_id = ANY (ARRAY(SELECT t.unanswered_id FROM unnest(_taken) AS t)) AND u.error IS NULL;
    RETURN cardinality(_taken);
END;
$$;
