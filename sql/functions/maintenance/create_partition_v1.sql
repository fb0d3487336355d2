-- Makes one partition and moves into it what the default partition holds of its time; returns the events moved.
-- Run each call in a transaction of its own. ATTACH waits for transactions that wrote to the default partition, and
-- whoever writes there waits for ATTACH: set lock_timeout, and try again later when it runs out.
CREATE OR REPLACE FUNCTION projections.create_partition_v1(p_from timestamptz, p_to timestamptz)
RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
    -- In UTC and to the second, so that partitions of any interval have names of their own.
    _name text := 'events_' || to_char(p_from AT TIME ZONE 'UTC', 'YYYYMMDD"t"HH24MISS');
    _moved bigint;
BEGIN
    EXECUTE format(
        'CREATE TABLE projections.%I (LIKE projections.events INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING INDEXES)', _name
    );
    EXECUTE format(
        'WITH moved AS (DELETE FROM projections.events_default WHERE db_timestamp >= %L AND db_timestamp < %L RETURNING *) '
        'INSERT INTO projections.%I SELECT * FROM moved', p_from, p_to, _name
    );
    GET DIAGNOSTICS _moved = ROW_COUNT;
    EXECUTE format('ALTER TABLE projections.events ATTACH PARTITION projections.%I FOR VALUES FROM (%L) TO (%L)', _name, p_from, p_to);
    RETURN _moved;
END;
$$;
