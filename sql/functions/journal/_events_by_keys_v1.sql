-- The events of given keys, in any order, with JSON as it is stored: for statements of read models, which a batch runs over them.
-- Planned as _load_events_v1 is, which says why. Raises PJ013 where one is not there any more: the statement would pass it over.
CREATE OR REPLACE FUNCTION projections._events_by_keys_v1(p_source_ids text[], p_seq_nrs bigint[], p_timestamps timestamptz[])
RETURNS TABLE (
    source_id text, seq_nr bigint, db_timestamp timestamptz, event_id uuid, entity_type text, event_type text, version smallint,
    payload json
)
LANGUAGE plpgsql
VOLATILE -- read_events_by_slices_v1 says why
SET plan_cache_mode = 'force_custom_plan'
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET enable_nestloop = on
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    _oldest timestamptz;
    _newest timestamptz;
    _found bigint;
BEGIN
    SELECT min(k.at), max(k.at) INTO _oldest, _newest FROM unnest(p_timestamps) AS k (at);
    RETURN QUERY SELECT e.source_id, e.seq_nr, e.db_timestamp, e.event_id, e.entity_type, e.event_type, e.version, e.payload
    FROM unnest(p_source_ids, p_seq_nrs, p_timestamps) AS k (source_id, seq_nr, db_timestamp)
    CROSS JOIN LATERAL (
        SELECT e.* FROM projections.events AS e
        WHERE e.source_id = k.source_id AND e.seq_nr = k.seq_nr AND e.db_timestamp = k.db_timestamp
        AND e.db_timestamp BETWEEN _oldest AND _newest LIMIT 1
    ) AS e;
    GET DIAGNOSTICS _found = ROW_COUNT;
    IF _found <> cardinality(p_source_ids) THEN
        RAISE EXCEPTION '% of % events that were read are no longer in the journal', cardinality(p_source_ids) - _found, cardinality(p_source_ids)
        USING ERRCODE = 'PJ013';
    END IF;
END;
$$;
