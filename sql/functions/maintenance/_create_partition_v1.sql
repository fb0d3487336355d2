-- Makes one partition and moves into it what the default partition holds of its time; returns the rows moved.
-- Run each call in a transaction of its own. It waits for transactions that use the default partition, or when rows are
-- moved the table, and whoever comes next waits behind it: set lock_timeout, and try again later when it runs out. Set it
-- below deadlock_timeout: then this gives up before anybody that it stands in the way of is taken for a deadlock.
-- Rows move before the locks that readers and writers wait for, as long as that takes; imports alone wait for it, and who changes one
-- of these rows. Under the locks PostgreSQL reads the default partition through, to check that it has no row of the time.
-- 42P17: another partition has the time, or some of it.
CREATE OR REPLACE FUNCTION projections._create_partition_v1(
    p_from timestamptz, p_to timestamptz, p_table text DEFAULT 'events'
)
RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
-- Bounds are written as text below: other styles have abbreviations of time zones, which are ambiguous.
SET datestyle = 'ISO'
AS $$
DECLARE
    _table record;
    -- In UTC and to the second, so that partitions of any interval have names of their own.
    _wanted text := p_table || to_char(p_from AT TIME ZONE 'UTC', '_YYYYMMDD"t"HH24MISS');
    _name text := _wanted;
    _moved bigint := 0;
BEGIN
    SELECT t.* INTO _table FROM projections._partitioned_table_v1(p_table) AS t;
    -- A row that is on its way to the default partition when this partition appears is refused by PostgreSQL. So
    -- imports wait until this is done, and when the partition is of the present, appends too; see below for the other tables.
    IF p_table = 'events' THEN
        LOCK TABLE projections.imports IN ROW EXCLUSIVE MODE;
        IF p_from < clock_timestamp() + interval '1 minute' AND p_to > clock_timestamp() THEN
            LOCK TABLE projections.sources IN SHARE MODE;
        END IF;
    END IF;
    -- Somebody may have made a table of that name by hand, or kept it after detaching it.
    FOR _n IN 2..1000 LOOP
        EXIT WHEN to_regclass(format('projections.%I', _name)) IS NULL;
        _name := _wanted || '_' || _n;
    END LOOP;
    -- The constraint spares ATTACH the reading of the new table while it keeps others out.
    EXECUTE format(
        'CREATE TABLE projections.%I (LIKE %s INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING INDEXES '
        'INCLUDING STORAGE INCLUDING COMPRESSION, '
        'CONSTRAINT within_bounds CHECK (%I >= %L AND %I < %L))',
        _name, _table.parent, _table.column_name, p_from, _table.column_name, p_to
    );
    IF _table.default_partition IS NOT NULL THEN
        EXECUTE format(
            'WITH moved AS (DELETE FROM %s WHERE %I >= %L AND %I < %L RETURNING *) INSERT INTO projections.%I SELECT * FROM moved',
            _table.default_partition, _table.column_name, p_from, _table.column_name, p_to, _name
        );
        GET DIAGNOSTICS _moved = ROW_COUNT;
    END IF;
    -- A query plans with the partitions that it finds, and only then takes its snapshot: planned without this one, it would
    -- not find what has just left the default partition, and a reader would pass it by forever. ATTACH alone lets it plan.
    IF _moved > 0 THEN
        EXECUTE format('ANALYZE projections.%I', _name);
        -- Where many have moved, who is in the way for a moment does not have them all moved again.
        PERFORM projections._lock_patiently_v1(
            ARRAY[format('ONLY %s IN ACCESS EXCLUSIVE MODE', _table.parent), _table.default_partition || ' IN ACCESS EXCLUSIVE MODE'],
            CASE WHEN _moved > 10000 THEN 5 ELSE 1 END
        );
    ELSIF p_table <> 'events' THEN
        EXECUTE format('LOCK TABLE ONLY %s IN SHARE MODE', _table.parent);
    END IF;
    EXECUTE format('ALTER TABLE %s ATTACH PARTITION projections.%I FOR VALUES FROM (%L) TO (%L)', _table.parent, _name, p_from, p_to);
    EXECUTE format('ALTER TABLE projections.%I DROP CONSTRAINT within_bounds', _name);
    RETURN _moved;
END;
$$;
