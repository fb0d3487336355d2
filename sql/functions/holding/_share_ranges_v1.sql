-- Says which ranges another member is to hold: a pure function of where the ranges begin, of who was to hold each before,
-- and of the members that are there. Without any, nobody.
--
-- Even: no member has two ranges more than another. Minimal: a range moves only when its member is gone or has more than
-- its share; what does not go into equal shares stays with those that have most, then goes to the first. Contiguous where
-- that leaves a choice, so that a member keeps its slices together when ranges are cut again.
CREATE OR REPLACE FUNCTION projections._share_ranges_v1(p_min_slices smallint[], p_assigned text[], p_members text[])
RETURNS TABLE (min_slice smallint, assigned_to text)
LANGUAGE plpgsql
IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _ranges CONSTANT integer := cardinality(p_assigned);
    -- Without any, all ranges go to the first, who is nobody.
    _members CONSTANT integer := greatest(cardinality(p_members), 1);
    -- The place among the members of who is to hold each range.
    _holders integer[] := ARRAY(
        SELECT m.place FROM unnest(p_assigned) WITH ORDINALITY AS a (member, place)
        LEFT JOIN unnest(p_members) WITH ORDINALITY AS m (member, place) ON a.member = m.member
        ORDER BY a.place
    );
    -- How many ranges each member has too few; below 0, too many.
    _missing integer[] := ARRAY(
        SELECT
            _ranges / _members - m.held + (row_number() OVER (ORDER BY m.held DESC, m.place) <= _ranges % _members)::integer
        FROM (
            SELECT g.place, count(h.place) AS held
            FROM generate_series(1, _members) AS g (place) LEFT JOIN unnest(_holders) AS h (place) ON g.place = h.place
            GROUP BY g.place
        ) AS m
        ORDER BY m.place
    );
    _run record;
    _count integer;
    _from integer;
    _head integer;
    _slices integer;
    _wanted integer;
    _given integer := 0;
    _given_slices integer := 0;
    _end integer := 0;
    _taker integer;
BEGIN
    -- Who has too many gives up its shortest runs, so that longer ones stay whole, and an end of one.
    FOR _run IN
        SELECT r.holder, min(r.place)::integer AS place, count(*)::integer AS length
        FROM (
            SELECT h.holder, h.place, h.place - row_number() OVER (PARTITION BY h.holder ORDER BY h.place) AS number
            FROM unnest(_holders) WITH ORDINALITY AS h (holder, place) WHERE _missing[h.holder] < 0
        ) AS r
        GROUP BY r.holder, r.number ORDER BY r.holder, count(*), min(r.place)
    LOOP
        _count := least(_run.length, -_missing[_run.holder]);
        CONTINUE WHEN _count = 0;
        -- Of its two ends the one that keeps the slices that move at their share: ranges differ by a slice.
        _from := _run.place + _run.length - _count;
        _head := coalesce(p_min_slices[_run.place + _count], 1024) - p_min_slices[_run.place];
        _slices := coalesce(p_min_slices[_from + _count], 1024) - p_min_slices[_from];
        _wanted := 1024 * (_given + _count) - _ranges * _given_slices;
        IF abs(_ranges * _head - _wanted) < abs(_ranges * _slices - _wanted) THEN
            _from := _run.place;
            _slices := _head;
        END IF;
        _given := _given + _count;
        _given_slices := _given_slices + _slices;
        _holders[_from:_from + _count - 1] := array_fill(NULL::integer, ARRAY[_count]);
        _missing[_run.holder] := _missing[_run.holder] + _count;
    END LOOP;
    -- A free range goes to its neighbour on the left, to the one after the free run, or to whoever lacks most.
    FOR _place IN 1.._ranges LOOP
        CONTINUE WHEN _holders[_place] IS NOT NULL;
        IF _end <= _place THEN
            _end := _place + 1;
            WHILE _end <= _ranges AND _holders[_end] IS NULL LOOP
                _end := _end + 1;
            END LOOP;
        END IF;
        _taker := CASE
            WHEN _missing[_holders[_place - 1]] > 0 THEN _holders[_place - 1]
            WHEN _missing[_holders[_end]] >= _end - _place THEN _holders[_end]
            ELSE (
                SELECT m.place FROM unnest(_missing) WITH ORDINALITY AS m (missing, place)
                ORDER BY m.missing DESC, m.place LIMIT 1
            )
        END;
        _holders[_place] := _taker;
        _missing[_taker] := _missing[_taker] - 1;
    END LOOP;
    RETURN QUERY
    SELECT p_min_slices[h.place], p_members[h.holder] FROM unnest(_holders) WITH ORDINALITY AS h (holder, place)
    WHERE p_members[h.holder] IS DISTINCT FROM p_assigned[h.place];
END;
$$;
