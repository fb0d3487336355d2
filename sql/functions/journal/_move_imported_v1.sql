-- What _import_events_v1 does once the owner of this function may read what the caller has staged. It has the rights of the
-- schema's owner, so that nobody needs those to write the log past its rules; so it looks first whether the staged table is
-- one that runs no code of the caller: no view, no rule, trigger, policy or index, and only PostgreSQL's own types.
--
-- Numbers and timestamps are kept and checked: a source goes on at its next number, in strictly increasing time, and
-- never in the future. Raises PJ003 with the source and what is wrong, PJ002 for an event_id that is used already.
-- Readers that are past these times go back to them (projections.imports); those that cannot refuse the import.
CREATE OR REPLACE FUNCTION projections._move_imported_v1()
RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
-- Joins of the staged table with arrays: a loop in a loop would grow with the square of the chunk, and merging sorts all of it again.
SET enable_nestloop = off
SET enable_mergejoin = off
SET enable_hashjoin = on
AS $$
DECLARE
    _seed CONSTANT uuid := gen_random_uuid();
    _wrong record;
    _source_ids text[];
    _entity_types text[];
    _slices smallint[];
    _seq_nrs bigint[];
    _timestamps timestamptz[];
    _types text[];
    _times timestamptz[];
    _since timestamptz;
    _count bigint;
BEGIN
    -- What others have committed before the lock below was had must be seen.
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION 'an import needs the isolation level READ COMMITTED' USING ERRCODE = '25001';
    END IF;
    IF NOT EXISTS (
        SELECT FROM pg_class AS c
        WHERE c.oid = 'pg_temp.projections_import'::regclass AND c.relkind = 'r' AND NOT c.relhasrules AND NOT c.relhastriggers
        AND NOT c.relrowsecurity AND NOT c.relhasindex AND NOT c.relhassubclass AND NOT c.relispartition
        AND NOT EXISTS (
            SELECT FROM pg_attribute AS a INNER JOIN pg_type AS t ON a.atttypid = t.oid
            WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
            AND (
                t.typtype <> 'b' OR t.typnamespace <> 'pg_catalog'::regnamespace OR a.attgenerated <> ''
                -- By another, two sources might be one here.
                OR a.attcollation NOT IN (0, '"default"'::regcollation, '"C"'::regcollation)
            )
        )
    ) THEN
        RAISE EXCEPTION 'projections_import is not a plain table with columns of PostgreSQL''s own types and the usual collations'
        USING ERRCODE = 'PJ003', HINT = 'Make it as journal/importing.py does: no index, trigger, rule or policy.';
    END IF;
    -- Imports follow one another, so that their numbers are in the order of their commits.
    LOCK TABLE projections.imports IN SHARE ROW EXCLUSIVE MODE;
    PERFORM projections._lock_sources_v1(array_agg(i.source_id), array_agg(i.entity_type))
    FROM (SELECT DISTINCT i.source_id, i.entity_type FROM pg_temp.projections_import AS i) AS i;

    -- Looked up once for each source; what follows takes each event of the staged table in turn.
    SELECT
        array_agg(s.source_id), array_agg(s.entity_type), array_agg(s.slice), array_agg(s.seq_nr), array_agg(s.db_timestamp)
    INTO _source_ids, _entity_types, _slices, _seq_nrs, _timestamps
    FROM (SELECT DISTINCT i.source_id FROM pg_temp.projections_import AS i) AS i
    CROSS JOIN LATERAL (SELECT s.* FROM projections.sources AS s WHERE s.source_id = i.source_id LIMIT 1) AS s;

    SELECT i.source_id, i.entity_type, i.stored, i.seq_nr, i.db_timestamp, i.expected, i.previous INTO _wrong
    FROM (
        SELECT
            i.source_id, i.entity_type, s.entity_type AS stored, i.seq_nr, i.db_timestamp,
            s.seq_nr + row_number() OVER w AS expected,
            coalesce(lag(i.db_timestamp) OVER w, s.db_timestamp) AS previous
        FROM pg_temp.projections_import AS i
        INNER JOIN unnest(_source_ids, _entity_types, _seq_nrs, _timestamps)
        AS s (source_id, entity_type, seq_nr, db_timestamp) ON i.source_id = s.source_id
        WINDOW w AS (PARTITION BY i.source_id ORDER BY i.seq_nr, i.db_timestamp)
    ) AS i
    WHERE i.entity_type <> i.stored
    OR i.seq_nr <> i.expected OR i.db_timestamp <= i.previous OR i.db_timestamp > clock_timestamp()
    ORDER BY i.entity_type = i.stored, i.source_id, i.seq_nr
    LIMIT 1;
    IF FOUND THEN
        IF _wrong.entity_type <> _wrong.stored THEN
            RAISE EXCEPTION 'source % is of entity type %, not %',
                quote_literal(_wrong.source_id), quote_literal(_wrong.stored), quote_literal(_wrong.entity_type)
            USING ERRCODE = 'PJ003';
        END IF;
        IF _wrong.seq_nr <> _wrong.expected THEN
            RAISE EXCEPTION 'source % has seq_nr % where % is due', quote_literal(_wrong.source_id), _wrong.seq_nr, _wrong.expected
            USING ERRCODE = 'PJ003';
        ELSIF _wrong.db_timestamp <= _wrong.previous THEN
            RAISE EXCEPTION 'source %, seq_nr %: timestamp % is not after the one before it, %',
                quote_literal(_wrong.source_id), _wrong.seq_nr, _wrong.db_timestamp, _wrong.previous
            USING ERRCODE = 'PJ003';
        ELSE
            RAISE EXCEPTION 'source %, seq_nr %: timestamp % is in the future',
                quote_literal(_wrong.source_id), _wrong.seq_nr, _wrong.db_timestamp
            USING ERRCODE = 'PJ003';
        END IF;
    END IF;

    -- Who reads may refuse it.
    SELECT array_agg(i.entity_type), array_agg(i.since) INTO _types, _times
    FROM (
        SELECT i.entity_type, min(i.db_timestamp) AS since FROM pg_temp.projections_import AS i GROUP BY i.entity_type
    ) AS i;
    EXECUTE projections._hooks_v1('import', '$1, $2') USING _types, _times;

    SELECT CASE WHEN bool_and(i.at IS NOT NULL) THEN min(i.at) - interval '1 day' ELSE '1970-01-01T00:00:00Z' END INTO _since
    FROM (
        SELECT projections._uuid7_time_v1(i.event_id) AS at FROM pg_temp.projections_import AS i WHERE i.event_id IS NOT NULL
    ) AS i;
    SELECT i.event_id, i.source_id, i.seq_nr, i.late INTO _wrong
    FROM (
        SELECT
            i.event_id, i.source_id, i.seq_nr, projections._uuid7_time_v1(i.event_id) > i.db_timestamp + interval '1 day' AS late,
            count(*) OVER (PARTITION BY i.event_id) > 1
            OR (
                SELECT e.event_id FROM projections.events AS e
                WHERE e.event_id = i.event_id AND e.db_timestamp >= _since LIMIT 1
            ) IS NOT NULL AS used
        FROM pg_temp.projections_import AS i
        WHERE i.event_id IS NOT NULL
    ) AS i
    WHERE i.late OR i.used
    ORDER BY i.source_id, i.seq_nr
    LIMIT 1;
    IF FOUND THEN
        IF _wrong.late THEN
            RAISE EXCEPTION 'source %, seq_nr %: event_id % carries a time after its event',
                quote_literal(_wrong.source_id), _wrong.seq_nr, _wrong.event_id
            USING ERRCODE = 'PJ003', HINT = 'Leave event_id out: it is made from the timestamp.';
        END IF;
        RAISE EXCEPTION 'source %, seq_nr %: event_id % is used already',
            quote_literal(_wrong.source_id), _wrong.seq_nr, _wrong.event_id
        USING ERRCODE = 'PJ002';
    END IF;

    INSERT INTO projections.events (
        db_timestamp, seq_nr, event_id, slice, version, source_id, entity_type, event_type, payload, metadata, tags
    )
    SELECT
        i.db_timestamp, i.seq_nr,
        coalesce(
            i.event_id, projections._uuid7_of_v1(i.db_timestamp, _seed, hashtextextended(i.source_id, i.seq_nr))
        ),
        s.slice, i.version, i.source_id, i.entity_type, i.event_type, projections.checked_json_v1(i.payload),
        projections.checked_json_v1(i.metadata), i.tags::text[]
    FROM pg_temp.projections_import AS i
    INNER JOIN unnest(_source_ids, _slices) AS s (source_id, slice) ON i.source_id = s.source_id
    ORDER BY i.db_timestamp, s.slice, i.source_id, i.seq_nr;
    GET DIAGNOSTICS _count = ROW_COUNT;

    -- The rows are there: this finds each by its key.
    INSERT INTO projections.sources AS s (source_id, entity_type, slice, seq_nr, db_timestamp)
    SELECT i.source_id, min(i.entity_type), 0, max(i.seq_nr), max(i.db_timestamp)
    FROM pg_temp.projections_import AS i GROUP BY i.source_id
    ON CONFLICT (source_id) DO UPDATE SET seq_nr = excluded.seq_nr, db_timestamp = excluded.db_timestamp;

    INSERT INTO projections.imports (entity_type, from_timestamp, events)
    SELECT i.entity_type, min(i.db_timestamp), count(*)
    FROM pg_temp.projections_import AS i GROUP BY i.entity_type;

    TRUNCATE pg_temp.projections_import;
    RETURN _count;
END;
$$;
