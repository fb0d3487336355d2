-- Makes sure, for the rest of the transaction, that a partition of the log is what was archived of it: that many events with that checksum
-- (_content_of_events_v1). Whoever would write to it waits from here on: imports before they have locked anything else. The checksum is
-- computed before, and under the locks it is looked whether a row has been written or deleted since; if so, it is computed again.
-- PJ072: it is not.
CREATE OR REPLACE FUNCTION projections._check_archived_v1(p_partition projections.partitions, p_events bigint, p_content numeric)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    -- What the next statement does not see is of a transaction that is not older.
    _oldest CONSTANT xid := pg_snapshot_xmin(pg_current_snapshot())::xid;
    _events bigint;
    _content numeric;
    _unchanged boolean := FALSE;
BEGIN
    FOR _look IN 1..2 LOOP
        SELECT coalesce(sum(c.events), 0), coalesce(sum(c.content), 0) INTO _events, _content
        FROM projections._content_of_events_v1(p_partition.from_timestamp, p_partition.to_timestamp) AS c;
        EXIT WHEN _look = 2;
        LOCK TABLE projections.imports IN ROW EXCLUSIVE MODE;
        EXECUTE format('LOCK TABLE %s IN SHARE MODE', p_partition.relation::regclass);
        EXECUTE format(
            'SELECT count(*) = $1 AND coalesce(bool_and(age(r.xmin) > age($2)), TRUE) FROM %s AS r', p_partition.relation::regclass
        ) INTO _unchanged USING _events, _oldest;
        EXIT WHEN _unchanged;
    END LOOP;
    IF _events <> p_events THEN
        RAISE EXCEPTION 'partition % has % rows, of which % are archived', p_partition.name, _events, p_events
        USING ERRCODE = 'PJ072', HINT = 'Archive it again: projections archive export';
    ELSIF _content IS DISTINCT FROM p_content THEN
        RAISE EXCEPTION 'rows of partition % were changed since they were archived', p_partition.name
        USING ERRCODE = 'PJ072', HINT = 'Archive it again: projections archive export';
    END IF;
END;
$$;
