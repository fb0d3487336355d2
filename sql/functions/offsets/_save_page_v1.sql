-- Stores that a whole page is handled, in the transaction of its effects: save_offsets_v1, with what it takes of sources made from the
-- page's events here. The arrays of the page run in parallel, in any order. Returns what save_offsets_v1 returns.
--
-- Raises PJ011, too, unless each event is the next one of its source: one was handled before, waits for a decision, or has others before
-- it that are not handled. Then it is for the worker to decide about each.
--
-- Of a page that is older than p_old as a whole, only the newest offsets are stored (_evict_up_to_v1): no event older than p_old can appear
-- any more, all events before the page are handled, and the page is older than p_retention, which is how long offsets are kept. A source
-- without an offset then has no event before the page that is not handled.
CREATE OR REPLACE FUNCTION projections._save_page_v1(
    p_projection_id integer,
    p_min_slice integer,
    p_epoch bigint,
    p_owner text,
    p_commits bigint,
    p_answered bigint,
    p_timeline integer,
    p_started_at timestamptz,
    p_batch text,
    p_horizon timestamptz,
    p_import_id bigint,
    p_page_source_ids text[],
    p_page_slices smallint[],
    p_page_seq_nrs bigint[],
    p_page_timestamps timestamptz[],
    p_old timestamptz DEFAULT NULL,
    p_retention interval DEFAULT NULL
)
RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = 'force_generic_plan'
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
DECLARE
    _oldest CONSTANT timestamptz := (SELECT min(t.at) FROM unnest(p_page_timestamps) AS t (at));
    _newest CONSTANT timestamptz := (SELECT max(t.at) FROM unnest(p_page_timestamps) AS t (at));
    _source_ids text[];
    _slices smallint[];
    _previous bigint[];
    _seq_nrs bigint[];
    _timestamps timestamptz[];
    _known integer;
    _has_gaps boolean;
    _evicted_before timestamptz;
    _bound timestamptz;
    _waited boolean;
BEGIN
    -- Those with an offset first, each part in the order in which all lock them. A source's first event leaves none before it.
    SELECT
        array_agg(s.source_id), array_agg(s.slice), array_agg(s.first - 1), array_agg(s.last), array_agg(s.at),
        count(*) FILTER (WHERE s.first > 1), bool_or(s.last - s.first + 1 <> s.events)
    INTO _source_ids, _slices, _previous, _seq_nrs, _timestamps, _known, _has_gaps
    FROM (
        SELECT
            e.source_id, min(e.slice) AS slice, min(e.seq_nr) AS first, max(e.seq_nr) AS last, count(*) AS events, max(e.at) AS at
        FROM unnest(p_page_source_ids, p_page_slices, p_page_seq_nrs, p_page_timestamps) AS e (source_id, slice, seq_nr, at)
        GROUP BY e.source_id
        ORDER BY min(e.seq_nr) = 1, e.source_id COLLATE "C"
    ) AS s;
    IF _has_gaps OR (
        EXISTS (SELECT FROM projections.parked_sources AS k WHERE k.projection_id = p_projection_id)
        AND EXISTS (
            SELECT FROM unnest(_source_ids) AS s (source_id)
            CROSS JOIN LATERAL (
                SELECT FROM projections.parked_sources AS k
                WHERE k.projection_id = p_projection_id AND k.source_id = s.source_id COLLATE "C" LIMIT 1
            ) AS k
        )
    ) THEN
        RAISE EXCEPTION 'the events of the page are not the next ones of their sources' USING ERRCODE = 'PJ011';
    END IF;
    IF _newest < p_old THEN
        -- Locked, for an eviction raises it, too.
        SELECT p.evicted_before INTO _evicted_before
        FROM projections.projections AS p WHERE p.projection_id = p_projection_id FOR NO KEY UPDATE;
        _bound := projections._evict_up_to_v1(p_projection_id, p_import_id, _newest, p_retention);
    END IF;
    IF _bound IS NOT NULL THEN
        SELECT k.source_ids, k.slices, k.previous, k.seq_nrs, k.timestamps, k.known
        INTO _source_ids, _slices, _previous, _seq_nrs, _timestamps, _known
        FROM projections._forget_page_v1(p_projection_id, _bound, _source_ids, _slices, _previous, _seq_nrs, _timestamps) AS k;
    END IF;
    _waited := projections.save_offsets_v1(
        p_projection_id, p_min_slice, p_epoch, p_owner, p_commits, p_answered, p_timeline, p_started_at, p_batch, p_horizon,
        p_import_id, _source_ids, _slices[_known + 1:], _previous[:_known], _seq_nrs, _timestamps, cardinality(p_page_seq_nrs)
    );
    IF _bound IS NULL THEN
        -- Later than the offsets: a bound from before an eviction would not explain what it took away.
        _evicted_before := (SELECT p.evicted_before FROM projections.projections AS p WHERE p.projection_id = p_projection_id);
    END IF;
    IF _oldest < _evicted_before THEN
        RAISE EXCEPTION 'events of the page are as old as offsets that were evicted' USING ERRCODE = 'PJ011';
    END IF;
    RETURN _waited;
END;
$$;
