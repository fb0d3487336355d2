-- Says that a worker is alive, assigns the ranges of its projections where they are unevenly assigned or to nobody alive,
-- unless another does it now, claims the ranges that are assigned to it and free, and returns what is its own: for each
-- of its projections one row. Nothing but this row is needed to know what to run, so a lost answer does no harm. A projection
-- goes by its number and its name: in a database that went back in time, the number may be another's. One that is not there
-- has a row without a version.
--
-- A range is free when it has no owner, or one whose lease has ended. A new epoch makes everything that an earlier owner
-- still tries to commit fail. A row that a transaction holds locked is left for the next heartbeat.
--
-- p_beat counts the heartbeats of a worker, p_answered is the last one of them that it had an answer to: a row that shows an
-- earlier one, or none, says that the database went back in time. Such a row stays as it is, and nothing that the worker
-- remembers can be stored (_same_generation_v1), until it has learnt that, and begins again with 0: the first answer may get lost.
CREATE OR REPLACE FUNCTION projections.heartbeat_v1(
    p_owner text, p_host text, p_pid integer, p_lease interval, p_projection_ids integer[], p_names text[],
    p_versions integer[], p_leaving boolean, p_answered bigint, p_beat bigint,
    -- For each what its code reads, as the text of an array: an array of arrays would need all to be of one length.
    p_entity_types text[]
)
RETURNS TABLE (
    projection_id integer,
    -- Which version of its code it runs; a worker of another is given no range.
    version integer,
    paused boolean,
    -- Whether somebody has decided about a parked source.
    decided boolean,
    -- Whether the ranges are still to be assigned: another has locked the projection.
    uneven boolean,
    -- How many ranges are assigned to this worker and still another's.
    awaited bigint,
    -- The oldest horizon among the ranges of others, NULL when there are none.
    others_horizon timestamptz,
    min_slices smallint[],
    max_slices smallint[],
    epochs bigint[],
    horizons timestamptz[],
    import_ids bigint[],
    -- For each, whether it is assigned to this worker: else it is to be given up.
    kept boolean[],
    -- For each, the dead owner that it was taken from by this heartbeat, or NULL.
    taken_from text[],
    -- For each, how often progress was stored.
    commits bigint[],
    -- Whether the database went back in time since the last answer: what the worker remembers of it is worth nothing.
    went_back boolean,
    -- What it reads, NULL for every type; a worker whose code reads anything else is given no range either.
    entity_types text[]
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _now CONSTANT timestamptz := clock_timestamp();
    _claimed jsonb;
    _beats bigint;
    _id integer;
    _uneven integer[];
    -- Those of which this worker has the code.
    _ids CONSTANT integer[] := ARRAY(
        SELECT p.projection_id FROM projections.projections AS p
        INNER JOIN unnest(p_projection_ids, p_names, p_versions, p_entity_types) AS v (id, name, version, entity_types)
            ON p.projection_id = v.id AND p.name = v.name AND p.version = v.version
        WHERE p.entity_types IS NOT DISTINCT FROM v.entity_types::text[]
    );
BEGIN
    SELECT w.beats INTO _beats FROM projections.workers AS w WHERE w.owner = p_owner FOR UPDATE;
    INSERT INTO projections.workers AS w (owner, host, pid, projection_ids, lease_until, leaving, beats)
    VALUES (p_owner, p_host, p_pid, _ids, _now + p_lease, p_leaving, CASE WHEN p_answered = 0 THEN p_beat ELSE 0 END)
    ON CONFLICT (owner) DO UPDATE
    SET lease_until = excluded.lease_until, leaving = excluded.leaving, projection_ids = excluded.projection_ids,
        -- One that was given up may arrive after the one that followed it.
        beats = CASE WHEN w.beats < p_answered THEN w.beats ELSE greatest(w.beats, p_beat) END;

    _uneven := ARRAY(SELECT e.projection_id FROM projections._uneven_v1(_ids) AS e WHERE e.uneven);
    FOR _id IN
        SELECT p.projection_id FROM projections.projections AS p WHERE p.projection_id = ANY(_uneven) FOR NO KEY UPDATE SKIP LOCKED
    LOOP
        PERFORM projections._assign_ranges_v1(_id);
        _uneven := array_remove(_uneven, _id);
    END LOOP;

    WITH free AS (
        SELECT r.ctid AS row_id, r.owner
        FROM projections.projection_ranges AS r
        WHERE NOT p_leaving
        AND r.projection_id = ANY(_ids)
        AND r.assigned_to = p_owner
        AND r.owner IS DISTINCT FROM p_owner
        AND NOT EXISTS (SELECT FROM projections.workers AS w WHERE w.owner = r.owner AND w.lease_until > _now)
        -- A rebuild that was swapped in since the statements above has freed them for another version.
        AND EXISTS (
            SELECT FROM projections.projections AS p
            INNER JOIN unnest(p_projection_ids, p_versions) AS v (id, version) ON p.projection_id = v.id AND p.version = v.version
            WHERE p.projection_id = r.projection_id
        )
        FOR UPDATE SKIP LOCKED
    ), claimed AS (
        UPDATE projections.projection_ranges AS r
        SET epoch = r.epoch + 1, owner = p_owner, claimed_at = _now
        FROM free AS f
        WHERE r.ctid = f.row_id
        RETURNING r.projection_id, r.min_slice, f.owner AS taken_from
    )
    SELECT jsonb_object_agg(format('%s/%s', c.projection_id, c.min_slice), c.taken_from) INTO _claimed FROM claimed AS c;
    PERFORM projections._note_range_change_v1(t.projection_id, 'taken over', t.ranges, NULL, t.taken_from, p_owner)
    FROM (
        SELECT split_part(c.key, '/', 1)::integer AS projection_id, c.value AS taken_from, count(*)::integer AS ranges
        FROM jsonb_each_text(_claimed) AS c WHERE c.value IS NOT NULL GROUP BY 1, 2
    ) AS t;

    RETURN QUERY
    SELECT
        a.id, p.version, coalesce(p.paused, FALSE),
        EXISTS (
            SELECT FROM projections.parked_sources AS k
            WHERE k.projection_id = p.projection_id AND k.decision <> 'waiting'
        ),
        p.projection_id IS NOT NULL AND p.projection_id = ANY(_uneven), r.awaited, r.others_horizon,
        r.min_slices, r.max_slices, r.epochs, r.horizons, r.import_ids, r.kept, r.taken_from, r.commits,
        coalesce(_beats, 0) < p_answered, p.entity_types
    FROM unnest(p_projection_ids, p_names) AS a (id, name)
    LEFT JOIN projections.projections AS p ON a.id = p.projection_id AND a.name = p.name
    CROSS JOIN LATERAL (
        SELECT
            count(*) FILTER (
                WHERE r.assigned_to = p_owner AND r.owner IS DISTINCT FROM p_owner AND p.projection_id = ANY(_ids)
            ) AS awaited,
            min(r.horizon) FILTER (WHERE r.owner IS DISTINCT FROM p_owner) AS others_horizon,
            array_agg(r.min_slice) FILTER (WHERE r.owner = p_owner) AS min_slices,
            array_agg(r.max_slice) FILTER (WHERE r.owner = p_owner) AS max_slices,
            array_agg(r.epoch) FILTER (WHERE r.owner = p_owner) AS epochs,
            array_agg(r.horizon) FILTER (WHERE r.owner = p_owner) AS horizons,
            array_agg(r.import_id) FILTER (WHERE r.owner = p_owner) AS import_ids,
            array_agg(r.assigned_to IS NOT DISTINCT FROM p_owner) FILTER (WHERE r.owner = p_owner) AS kept,
            array_agg(_claimed ->> format('%s/%s', r.projection_id, r.min_slice)) FILTER (WHERE r.owner = p_owner)
            AS taken_from,
            array_agg(r.commits) FILTER (WHERE r.owner = p_owner) AS commits
        FROM projections.projection_ranges AS r WHERE r.projection_id = p.projection_id
    ) AS r;
END;
$$;
