-- Up to which time a page looks at once, from a time on: a number of intervals of partitions, and from the present on, up to the end.
-- What it does not find there it looks for in twice as many. Each look is planned with its times as values, so that it opens
-- no other partitions: what a page costs does not depend on how many there are. Where nothing was found, they begin with
-- the next partition: a journal may have nothing for years.
CREATE OR REPLACE FUNCTION projections._page_end_v1(p_from timestamptz, p_until timestamptz, p_intervals integer)
RETURNS timestamptz
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = 'force_generic_plan'
SET datestyle = 'ISO'
SET timezone = 'UTC'
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _begin timestamptz := greatest(p_from, '1970-01-01T00:00:00Z');
    _end timestamptz;
    _interval CONSTANT interval := coalesce(
        (SELECT s.partition_interval FROM projections.partition_settings AS s WHERE s.table_name = 'events'), interval '1 day'
    );
BEGIN
    IF p_intervals = 2 THEN
        SELECT min(b.from_timestamp) INTO _begin
        FROM (
            SELECT substring(pg_get_expr(c.relpartbound, c.oid) FROM 'FROM \(''([^'']+)''\)')::timestamptz AS from_timestamp
            FROM pg_catalog.pg_inherits AS i INNER JOIN pg_catalog.pg_class AS c ON i.inhrelid = c.oid
            WHERE i.inhparent = 'projections.events'::regclass
        ) AS b
        WHERE b.from_timestamp >= _begin;
    END IF;
    _end := _begin + p_intervals * _interval;
    -- No partition begins later, or only those of the time to come.
    RETURN CASE WHEN _end <= now() THEN least(_end, p_until) ELSE p_until END;
END;
$$;
