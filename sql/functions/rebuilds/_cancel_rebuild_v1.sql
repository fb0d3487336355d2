-- Ends an unfinished rebuild and drops what it has made, or what a cancelled one has left. Where its tasks may still run,
-- set its state to cancelled in a transaction before this one: they look at it before each batch, and this waits for the
-- current batches.
CREATE OR REPLACE FUNCTION projections._cancel_rebuild_v1(p_rebuild_id integer)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE projections.rebuilds AS b SET state = 'cancelled'
    WHERE b.rebuild_id = p_rebuild_id AND b.state IN ('folding', 'verified', 'cancelled');
    IF FOUND THEN
        -- Not for their tables, one after another, while they wait for those that are locked here.
        PERFORM FROM projections.rebuild_parts AS k WHERE k.rebuild_id = p_rebuild_id ORDER BY k.min_slice FOR UPDATE;
        EXECUTE format('DROP SCHEMA IF EXISTS %I CASCADE', 'projections_rebuild_' || p_rebuild_id);
    END IF;
END;
$$;
