-- What people call a row of projections: the projection by its name; a part of one that reads several journals by NAME@JOURNAL.
CREATE OR REPLACE FUNCTION projections._part_name_v1(p_name text, p_journal text)
RETURNS text
LANGUAGE plpgsql -- generation_v1 says why not in SQL
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF (SELECT count(*) FROM projections.projections AS p WHERE p.name = p_name) > 1 THEN
        RETURN p_name || '@' || coalesce(p_journal, 'journal');
    END IF;
    RETURN p_name;
END;
$$;
