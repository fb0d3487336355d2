-- Wakes waiting readers. Never inside the transaction that appends: NOTIFY takes a lock of the whole database at
-- commit, which halves the rate of concurrent writers. Call it after the commit, and not for every one.
CREATE OR REPLACE FUNCTION projections.notify_appended_v1()
RETURNS void
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT pg_notify('projections_appended', '')
$$;
