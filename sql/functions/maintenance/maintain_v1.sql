-- Does one step of maintenance, if there is one that can be done now: makes a partition, drops one, or with neither, has
-- other parts of the library remove what nobody uses. Returns the step, with the rows moved or the bytes freed, and each that could not
-- be done with its problem, and whether it did not get a lock; nothing when all is done, or another run is at work.
-- Call it again and again, each time in a transaction of its own. It goes by partition_settings alone, so that whoever runs
-- projections may call it (SECURITY DEFINER): its owner's rights make and drop partitions, and nothing that a caller says
-- has a part in it.
CREATE OR REPLACE FUNCTION projections.maintain_v1()
RETURNS TABLE (
    step text, table_name text, name text, from_timestamp timestamptz, to_timestamp timestamptz, amount bigint, problem text,
    waited boolean
)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
-- Nobody waits behind it for longer, and it gives up before anybody in its way is taken for a deadlock.
SET lock_timeout = '500ms'
AS $$
#variable_conflict use_column
DECLARE
    _waits integer := 0;
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtext('slice-projections'), hashtext('maintain')) THEN
        RETURN;
    END IF;
    FOR step, table_name, name, from_timestamp, to_timestamp IN SELECT s.* FROM projections._maintenance_steps_v1() AS s LOOP
        problem := NULL;
        waited := FALSE;
        BEGIN
            IF step = 'create' THEN
                amount := projections._create_partition_v1(from_timestamp, to_timestamp, table_name);
            ELSE
                amount := projections._drop_partition_v1(name);
            END IF;
            RETURN NEXT;
            RETURN;
        EXCEPTION
            -- Whatever is wrong with one of them, the others go on.
            WHEN OTHERS THEN
                amount := NULL;
                problem := SQLERRM;
                waited := SQLSTATE IN ('55P03', '40P01');
                _waits := _waits + waited::integer;
        END;
        RETURN NEXT;
        EXIT WHEN _waits = 3;
    END LOOP;
    -- Until nothing is left, or for some seconds: the next call goes on.
    LOOP
        EXIT WHEN NOT EXISTS (SELECT FROM projections._clean_v1() AS c WHERE c.removed > 0)
            OR clock_timestamp() > statement_timestamp() + interval '5 seconds';
    END LOOP;
END;
$$;
