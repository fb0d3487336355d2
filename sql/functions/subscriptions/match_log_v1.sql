-- What the reader of the log does with events of one entity type, as match_events_v1 takes them: those that are for one
-- subscription go to that one, those that are for later are left to match_due_v1, and all others are matched.
CREATE OR REPLACE FUNCTION projections.match_log_v1(
    p_entity_type text,
    p_source_ids text[],
    p_seq_nrs bigint[],
    p_db_timestamps timestamptz[],
    p_slices smallint[],
    p_topics text[],
    p_condition_ids integer[] DEFAULT NULL,
    p_wanted_topics text[] DEFAULT NULL,
    p_wanted_groups integer[] DEFAULT NULL,
    p_wanted_ids text[] DEFAULT NULL,
    p_failed integer[] DEFAULT NULL,
    p_errors text[] DEFAULT NULL
)
RETURNS bigint
LANGUAGE plpgsql
SET plan_cache_mode = 'force_generic_plan'
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    _directed record;
    _to bigint[];
BEGIN
    IF p_entity_type = 'published' AND EXISTS (SELECT FROM projections.directed_events) THEN
        _to := array_fill(NULL::bigint, ARRAY[cardinality(p_topics)]);
        FOR _directed IN
            SELECT e.place, d.source_id, d.seq_nr, d.subscription_id, d.not_before IS NULL AS now
            FROM unnest(p_source_ids, p_seq_nrs) WITH ORDINALITY AS e (source_id, seq_nr, place)
            INNER JOIN projections.directed_events AS d ON e.source_id = d.source_id AND e.seq_nr = d.seq_nr
            ORDER BY d.source_id, d.seq_nr
            FOR UPDATE OF d
        LOOP
            p_topics[_directed.place] := NULL;
            IF _directed.now THEN
                _to[_directed.place] := _directed.subscription_id;
            END IF;
        END LOOP;
        IF FOUND THEN
            -- Whoever comes second removes it: this reader, or match_due_v1.
            DELETE FROM projections.directed_events AS d
            WHERE d.ctid = ANY (ARRAY(
                SELECT f.ctid FROM unnest(p_source_ids, p_seq_nrs, p_topics) AS e (source_id, seq_nr, topic)
                CROSS JOIN LATERAL (
                    SELECT f.ctid FROM projections.directed_events AS f
                    WHERE f.source_id = e.source_id AND f.seq_nr = e.seq_nr AND (f.not_before IS NULL OR f.matched) LIMIT 1
                ) AS f
                WHERE e.topic IS NULL
            ));
            UPDATE projections.directed_events AS d SET passed = TRUE
            WHERE d.ctid = ANY (ARRAY(
                SELECT f.ctid FROM unnest(p_source_ids, p_seq_nrs, p_topics) AS e (source_id, seq_nr, topic)
                CROSS JOIN LATERAL (
                    SELECT f.ctid FROM projections.directed_events AS f
                    WHERE f.source_id = e.source_id AND f.seq_nr = e.seq_nr LIMIT 1
                ) AS f
                WHERE e.topic IS NULL
            ));
        END IF;
    END IF;
    RETURN projections.match_events_v1(
        p_entity_type, p_source_ids, p_seq_nrs, p_db_timestamps, p_slices, p_topics,
        p_condition_ids, p_wanted_topics, p_wanted_groups, p_wanted_ids, _to,
        p_failed => p_failed, p_errors => p_errors
    );
END;
$$;
