-- Asks one condition about events that it was not asked about as they came, as match_events_v1 does for all; they are for the
-- subscriptions that were there at their times in p_as_of. p_error: it is known to fail on them, and why. match_unanswered_v1
-- and match_unasked_v1 call it.
CREATE OR REPLACE FUNCTION projections.match_behind_v1(
    p_condition_id integer,
    p_entity_type text,
    p_source_ids text[],
    p_seq_nrs bigint[],
    p_db_timestamps timestamptz[],
    p_slices smallint[],
    p_topics text[],
    p_as_of timestamptz[],
    p_error text
)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _i record;
BEGIN
    SELECT array_agg(i.condition_id) AS ids, array_agg(i.topic) AS topics, array_agg(i.group_id) AS groups, array_agg(i.subscription_ids::text) AS subscriptions
    INTO _i
    FROM projections.interests_v1(
        p_entity_type, ARRAY(SELECT DISTINCT t.topic FROM unnest(p_topics) AS t (topic) WHERE t.topic IS NOT NULL) || NULL::text,
        p_condition_id
    ) AS i;
    IF cardinality(array_remove(p_topics, NULL)) > 0 AND _i.ids IS NOT NULL THEN
        PERFORM projections.match_events_v1(
            p_entity_type, p_source_ids, p_seq_nrs, p_db_timestamps, p_slices, p_topics,
            _i.ids, _i.topics, _i.groups, _i.subscriptions, p_as_of => p_as_of,
            p_failed => CASE WHEN p_error IS NOT NULL THEN ARRAY[p_condition_id] END, p_errors => ARRAY[p_error],
            p_behind => p_condition_id
        );
    END IF;
END;
$$;
