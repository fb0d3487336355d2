-- Makes one partition and moves into it what the default partition holds of its time; returns the events moved.
-- Run each call in a transaction of its own. It waits for transactions that use the default partition, or when events are
-- moved the log, and whoever comes next waits behind it: set lock_timeout, and try again later when it runs out. Set it
-- below deadlock_timeout: then this gives up before anybody that it stands in the way of is taken for a deadlock.
-- Once it has its locks it reads the default partition through (PostgreSQL's check): keep that small.
CREATE OR REPLACE FUNCTION projections.create_partition_v1(p_from timestamptz, p_to timestamptz)
RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
-- Bounds are written as text below: other styles have abbreviations of time zones, which are ambiguous.
SET datestyle = 'ISO'
AS $$
DECLARE
    -- In UTC and to the second, so that partitions of any interval have names of their own.
    _name text := 'events_' || to_char(p_from AT TIME ZONE 'UTC', 'YYYYMMDD"t"HH24MISS');
    _moved bigint;
BEGIN
    -- A row that is on its way to the default partition when this partition appears is refused by PostgreSQL. So
    -- imports wait until this is done, and when the partition is of the present, appends too.
    LOCK TABLE projections.imports IN ROW EXCLUSIVE MODE;
    IF p_from < clock_timestamp() + interval '1 minute' AND p_to > clock_timestamp() THEN
        LOCK TABLE projections.sources IN SHARE MODE;
    END IF;
    -- The constraint spares ATTACH the reading of the new table while it keeps others out.
    EXECUTE format(
        'CREATE TABLE projections.%I (LIKE projections.events INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING INDEXES, '
        'CONSTRAINT within_bounds CHECK (db_timestamp >= %L AND db_timestamp < %L))', _name, p_from, p_to
    );
    EXECUTE format(
        'WITH moved AS (DELETE FROM projections.events_default WHERE db_timestamp >= %L AND db_timestamp < %L RETURNING *) '
        'INSERT INTO projections.%I SELECT * FROM moved', p_from, p_to, _name
    );
    GET DIAGNOSTICS _moved = ROW_COUNT;
    -- A query plans with the partitions that it finds, and only then takes its snapshot: planned without this one, it would
    -- not find what has just left the default partition, and a reader would pass it by for ever. ATTACH alone lets it plan.
    IF _moved > 0 THEN
        LOCK TABLE ONLY projections.events IN ACCESS EXCLUSIVE MODE;
    END IF;
    EXECUTE format('ALTER TABLE projections.events ATTACH PARTITION projections.%I FOR VALUES FROM (%L) TO (%L)', _name, p_from, p_to);
    EXECUTE format('ALTER TABLE projections.%I DROP CONSTRAINT within_bounds', _name);
    RETURN _moved;
END;
$$;
