-- Raises what is wrong with an event, in the middle of an expression: data that does not fit (SQLSTATE 22023). It is stable, so
-- that a query around it needs no copy of its rows; the message is made from the event, or the planner would call it.
CREATE OR REPLACE FUNCTION projections._refuse_event_v1(p_message text)
RETURNS boolean
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE EXCEPTION '%', p_message USING ERRCODE = '22023';
END;
$$;
