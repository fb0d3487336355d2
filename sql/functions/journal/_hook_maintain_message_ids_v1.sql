-- Removes the ids of messages that no transaction takes any more: a limited number, the rest at the next call; returns how many.
CREATE OR REPLACE FUNCTION projections._hook_maintain_message_ids_v1(p_limit integer DEFAULT 10000)
RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_sort = off
AS $$
DECLARE
    _removed bigint;
BEGIN
    DELETE FROM projections.message_ids AS m
    WHERE m.ctid = ANY (ARRAY(
        SELECT o.ctid FROM projections.message_ids AS o
        WHERE o.taken_at < clock_timestamp() - interval '1 hour'
        ORDER BY o.taken_at LIMIT p_limit
        FOR UPDATE SKIP LOCKED
    ));
    GET DIAGNOSTICS _removed = ROW_COUNT;
    RETURN _removed;
END;
$$;
