-- Makes a group known, its slices cut into ranges that begin at the given ones; a known one is returned as it is. A new
-- reliable group begins with what matches from now on.
CREATE OR REPLACE FUNCTION projections.create_group_v1(
    p_name text, p_reliable boolean DEFAULT TRUE, p_min_slices integer[] DEFAULT '{0}'
)
RETURNS integer
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _id integer;
BEGIN
    PERFORM projections.cut_v1(p_min_slices);
    SELECT g.group_id INTO _id FROM projections.subscription_groups AS g WHERE g.name = p_name;
    IF FOUND THEN
        RETURN _id;
    END IF;
    IF p_name IS NULL OR p_name = '' OR char_length(p_name) > 255 THEN
        RAISE EXCEPTION 'the name of a group has 1 to 255 characters, not %', coalesce(char_length(p_name)::text, 'NULL')
        USING ERRCODE = 'PJ081';
    END IF;
    INSERT INTO projections.subscription_groups (name, reliable) VALUES (p_name, p_reliable)
    ON CONFLICT (name) DO NOTHING RETURNING group_id INTO _id;
    IF NOT FOUND THEN  -- somebody else has just made it
        SELECT g.group_id INTO _id FROM projections.subscription_groups AS g WHERE g.name = p_name;
        RETURN _id;
    END IF;
    INSERT INTO projections.group_ranges (group_id, min_slice, max_slice)
    SELECT _id, w.min_slice, w.max_slice FROM projections.cut_v1(p_min_slices) AS w;
    RETURN _id;
END;
$$;
