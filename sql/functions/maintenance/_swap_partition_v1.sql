-- Puts the copy that _cluster_partition_v1 has made in the place of its partition, once it has compared the two; returns
-- their events. Run it in a transaction of its own, at READ COMMITTED, with lock_timeout set as for _create_partition_v1:
-- where somebody is in the way for longer it tries again, a number of times, without comparing again.
-- 55006: the copy is not frozen. PJ050: the copy is not that of the partition as it is. 55P03: somebody is in the way.
CREATE OR REPLACE FUNCTION projections._swap_partition_v1(
    p_name text, p_attempts integer DEFAULT 5, p_pause interval DEFAULT '1 second'
)
RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET datestyle = 'ISO'
AS $$
DECLARE
    -- NULL, and so no copy either, when retention has taken the partition meanwhile.
    _old oid := to_regclass(format('projections.%I', p_name));
    _copy text := 'events_copy_of_' || _old;
    _xmin xid;
    _counts record;
BEGIN
    -- What others have committed before the locks below were had must be seen.
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION 'swapping a partition needs the isolation level READ COMMITTED' USING ERRCODE = '25001';
    ELSIF NOT pg_try_advisory_xact_lock(hashtext('slice-projections'), hashtext('cluster')) THEN
        RAISE EXCEPTION 'another run is putting a partition in slice order' USING ERRCODE = '55006';
    ELSIF to_regclass('projections.' || _copy) IS NULL THEN
        RAISE EXCEPTION 'partition % or its copy is gone: another run has removed it', p_name USING ERRCODE = 'PJ050';
    END IF;
    -- To a snapshot that is older than the copy, the log would be empty here. A frozen row is visible to all, and VACUUM
    -- freezes none while such a snapshot is in use, here or on a standby that sends its feedback; on others, freezing
    -- cancels it. So frozen rows show that nobody can miss them.
    EXECUTE format('SELECT r.xmin FROM projections.%I AS r LIMIT 1', _copy) INTO _xmin;
    IF age(_xmin) <= (SELECT age(c.relfrozenxid) FROM pg_catalog.pg_class AS c WHERE c.oid = to_regclass('projections.' || _copy)) THEN
        RAISE EXCEPTION 'transactions that began before partition % was copied have not ended: %', p_name, coalesce(
            (
                SELECT string_agg(format('process %s (%s)', a.pid, coalesce(a.application_name, '?')), ', ' ORDER BY a.xact_start)
                FROM pg_catalog.pg_stat_activity AS a
                WHERE a.datname = current_database() AND age(a.backend_xmin) >= age(_xmin)
            ),
            'see pg_prepared_xacts and pg_replication_slots'
        ) USING ERRCODE = '55006', HINT = 'Run VACUUM (FREEZE, ANALYZE) of the copy once they have.';
    END IF;

    -- Whoever would write to the partition waits from here on: imports before they have locked anything else.
    LOCK TABLE projections.imports IN ROW EXCLUSIVE MODE;
    EXECUTE format('LOCK TABLE projections.%I IN SHARE MODE', p_name);
    EXECUTE format(
        'SELECT o.events, ROW(o.*) IS NOT DISTINCT FROM ROW(n.*) AS same FROM '
        '(SELECT count(*) AS events, sum(hashtextextended(e::text, 0)) AS checksum FROM projections.%I AS e) AS o, '
        '(SELECT count(*) AS events, sum(hashtextextended(e::text, 0)) AS checksum FROM projections.%I AS e) AS n', p_name, _copy
    ) INTO _counts;
    IF NOT _counts.same THEN
        RAISE EXCEPTION 'partition % has changed since it was copied', p_name USING ERRCODE = 'PJ050';
    END IF;
    -- Nobody reads or writes the log until the transaction ends. ATTACH reads the default partition through: it may hold no event of
    -- the time.
    PERFORM projections._lock_patiently_v1(ARRAY[
        'ONLY projections.events IN ACCESS EXCLUSIVE MODE', 'projections.events_default IN ACCESS EXCLUSIVE MODE',
        format('projections.%I IN ACCESS EXCLUSIVE MODE', p_name)
    ], p_attempts, p_pause);
    PERFORM projections._replace_partition_v1(p_name, _copy);
    RETURN _counts.events;
END;
$$;
