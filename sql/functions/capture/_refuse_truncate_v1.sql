-- Trigger: a table whose deletes are captured is not truncated, for TRUNCATE does not say which rows were there.
CREATE OR REPLACE FUNCTION projections._refuse_truncate_v1()
RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE EXCEPTION 'table % is captured, and TRUNCATE has no events: use DELETE, or release the table', TG_RELID::regclass
    USING ERRCODE = 'PJ061', HINT = 'SELECT projections.release_table_v1(...), TRUNCATE and capture it again: without events.';
END;
$$;
