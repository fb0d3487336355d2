-- Waits until no transaction handles events of a projection inline, and keeps others from it until the end of this one: what is set back
-- must not be gone on from. Before any other lock; set lock_timeout, for others wait behind.
CREATE OR REPLACE FUNCTION projections.lock_inline_v1(p_projection_id integer)
RETURNS void
LANGUAGE plpgsql -- generation_v1 says why not in SQL
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('slice-projections inline'), p_projection_id);
END;
$$;
