-- Asks one condition about events, on behalf of the subscriptions that name topics, and, where open, of those that name none.
-- Returns the places of events in the array, and beside each a subscription that it is for, or NULL for all that want the event.
CREATE OR REPLACE FUNCTION projections.ask_condition_v1(
    p_condition_id integer,
    p_events projections.matchable_events[],
    p_topics text[],
    p_subscription_ids bigint[],
    p_open boolean,
    OUT places bigint[],
    OUT subscription_ids bigint[]
)
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_nestloop = on
SET enable_bitmapscan = off
AS $$
BEGIN
    EXECUTE format(
        'SELECT array_agg(m.projections_place), array_agg(m.projections_id) '
        'FROM projections_conditions.condition_%s($1, $2, $3, $4) AS m', p_condition_id
    )
    INTO places, subscription_ids USING p_events, p_topics, p_subscription_ids, p_open;
END;
$$;
