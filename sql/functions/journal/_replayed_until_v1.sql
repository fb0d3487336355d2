-- The time of the primary up to which a standby has replayed what was committed; null where there is nothing to replay.
-- While the primary commits nothing, or replay is paused, it stands still. Before the first commit after a start of the
-- standby, it is the time of the checkpoint that replay began at.
CREATE OR REPLACE FUNCTION projections._replayed_until_v1()
RETURNS timestamptz
LANGUAGE plpgsql
VOLATILE -- generation_v1 says why not in SQL
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN CASE WHEN pg_is_in_recovery() THEN coalesce(
        pg_last_xact_replay_timestamp(), (SELECT c.checkpoint_time FROM pg_control_checkpoint() AS c)
    ) END;
END;
$$;
