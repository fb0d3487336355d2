-- The events of given keys, in any order, with JSON as it is stored: for statements of read models, which a batch runs over them.
-- With p_all, raises PJ013 where one is not there any more: such a statement would pass it over.
--
-- It is planned with the times of the oldest and the newest as values: no partition of another time is opened. Each key is looked
-- up: knowing how many there are, the planner would rather read the whole log.
CREATE OR REPLACE FUNCTION projections._events_by_keys_v1(
    p_source_ids text[], p_seq_nrs bigint[], p_timestamps timestamptz[], p_all boolean DEFAULT TRUE
)
RETURNS SETOF projections.events
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
DECLARE
    _oldest timestamptz;
    _newest timestamptz;
    _found bigint;
BEGIN
    SELECT min(k.at), max(k.at) INTO _oldest, _newest FROM unnest(p_timestamps) AS k (at);
    RETURN QUERY SELECT e.*
    FROM unnest(p_source_ids, p_seq_nrs, p_timestamps) AS k (source_id, seq_nr, db_timestamp)
    CROSS JOIN LATERAL (
        SELECT e.* FROM projections.events AS e
        WHERE e.source_id = k.source_id AND e.seq_nr = k.seq_nr AND e.db_timestamp = k.db_timestamp
        AND e.db_timestamp BETWEEN _oldest AND _newest LIMIT 1
    ) AS e;
    GET DIAGNOSTICS _found = ROW_COUNT;
    IF p_all AND _found <> cardinality(p_source_ids) THEN
        RAISE EXCEPTION '% of % events that were read are no longer in the journal', cardinality(p_source_ids) - _found, cardinality(p_source_ids)
        USING ERRCODE = 'PJ013';
    END IF;
END;
$$;
