-- Whether somebody has come to need a partition since it was asked who does, of which only those can that have gone back: who stands
-- before where he stood (p_before), or is new. For _drop_partition_v1, which keeps them from changing meanwhile, and others from
-- writing to the partition. Returns who, or NULL.
CREATE OR REPLACE FUNCTION projections._newly_held_v1(p_partition projections.partitions, p_before jsonb)
RETURNS text
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _held text;
BEGIN
    EXECUTE format(
        'SELECT string_agg(DISTINCT h.holder || '' '' || h.reason, '', '') FROM (%s) AS h '
        'WHERE NOT coalesce(($2 ->> (h.part || '' '' || h.range))::bigint <= h.place, FALSE)', projections._hooks_v1('places', '$1')
    ) INTO _held USING p_partition, p_before;
    RETURN _held;
END;
$$;
