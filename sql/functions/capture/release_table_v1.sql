-- Ends the capture of a table and of its partitions; its events stay. Says whether it was captured.
CREATE OR REPLACE FUNCTION projections.release_table_v1(p_table regclass)
RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _relation regclass;
    _found boolean := FALSE;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('slice-projections'), hashtext('capture'));
    FOR _relation IN
        SELECT DISTINCT t.tgrelid FROM pg_trigger AS t
        WHERE t.tgname = 'projections_capture_2_append' AND (
            t.tgrelid = p_table OR t.tgrelid IN (SELECT p.relid FROM pg_partition_tree(p_table) AS p)
        )
    LOOP
        PERFORM projections._set_capture_triggers_v1(_relation, '{}', NULL);
        _found := TRUE;
    END LOOP;
    RETURN _found;
END;
$$;
