-- What the reader of the log does with events, whose columns run in parallel: those that are for one subscription go to that one,
-- those that are for later are left to _match_due_v1, and all others are matched. Returns what _match_events_v1 does, which says what
-- the other arguments are.
CREATE OR REPLACE FUNCTION projections._match_log_v1(
    p_entity_types text[],
    p_source_ids text[],
    p_seq_nrs bigint[],
    p_db_timestamps timestamptz[],
    p_slices smallint[],
    p_topics text[],
    p_interests projections.interests[] DEFAULT NULL,
    p_failed jsonb DEFAULT NULL
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
    _rows tid[] := '{}';
    _to bigint[];
BEGIN
    IF 'published' = ANY (p_entity_types) AND EXISTS (SELECT FROM projections.directed_events) THEN
        _to := array_fill(NULL::bigint, ARRAY[cardinality(p_topics)]);
        FOR _directed IN
            SELECT e.place, d.ctid, d.subscription_id, d.not_before IS NULL AS now
            FROM unnest(p_source_ids, p_seq_nrs) WITH ORDINALITY AS e (source_id, seq_nr, place)
            INNER JOIN projections.directed_events AS d ON e.source_id = d.source_id AND e.seq_nr = d.seq_nr
            ORDER BY d.source_id, d.seq_nr
            FOR UPDATE OF d
        LOOP
            _rows := _rows || _directed.ctid;
            p_topics[_directed.place] := NULL;
            IF _directed.now THEN
                _to[_directed.place] := _directed.subscription_id;
            END IF;
        END LOOP;
        -- They are locked: they stay where they are. Whoever comes second removes one: this reader, or _match_due_v1.
        DELETE FROM projections.directed_events AS d WHERE d.ctid = ANY (_rows) AND (d.not_before IS NULL OR d.matched);
        UPDATE projections.directed_events AS d SET passed = TRUE WHERE d.ctid = ANY (_rows);
    END IF;
    RETURN projections._match_events_v1(
        ARRAY(
            SELECT (e.source_id, e.seq_nr, e.db_timestamp, e.slice, e.topic, e.db_timestamp, e.subscription_id, e.entity_type)::projections.events_to_match
            FROM unnest(p_source_ids, p_seq_nrs, p_db_timestamps, p_slices, p_topics, _to, p_entity_types)
            AS e (source_id, seq_nr, db_timestamp, slice, topic, subscription_id, entity_type)
        ),
        p_interests, p_failed
    );
END;
$$;
