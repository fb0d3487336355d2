-- Raises PJ060 where a table's changes could not be told in full by events of its rows; else gives its primary key.
CREATE OR REPLACE FUNCTION projections._check_capturable_v1(p_table regclass)
RETURNS text[]
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _class pg_class;
    _index pg_index;
    _reason text;
BEGIN
    SELECT c.* INTO _class FROM pg_class AS c WHERE c.oid = p_table;
    SELECT i.* INTO _index FROM pg_index AS i WHERE i.indrelid = p_table AND i.indisprimary;
    _reason := CASE
        WHEN _class.oid IS NULL THEN 'there is no such table'
        WHEN _class.relkind NOT IN ('r', 'p') THEN 'it is not a table, but ' || CASE _class.relkind
            WHEN 'v' THEN 'a view' WHEN 'm' THEN 'a materialized view' WHEN 'f' THEN 'a foreign table'
            WHEN 'S' THEN 'a sequence' WHEN 'c' THEN 'a type' ELSE 'an index' END
        WHEN _class.relpersistence = 't' THEN 'it is temporary'
        WHEN _class.relpersistence = 'u' THEN 'it is unlogged: a crash empties it without events'
        WHEN _class.relnamespace IN ('projections'::regnamespace, 'pg_catalog'::regnamespace, 'information_schema'::regnamespace)
            THEN 'it belongs to ' || _class.relnamespace::regnamespace
        WHEN _class.relispartition THEN 'it is a partition: capture ' || (
            SELECT a.relid FROM pg_partition_ancestors(p_table) WITH ORDINALITY AS a (relid, place) ORDER BY a.place DESC LIMIT 1
        )
        WHEN _class.relkind = 'r' AND EXISTS (SELECT FROM pg_inherits AS h WHERE p_table IN (h.inhrelid, h.inhparent))
            THEN 'it inherits, or others inherit from it'
        WHEN EXISTS (
            SELECT FROM pg_partition_tree(p_table) AS t INNER JOIN pg_class AS c ON t.relid = c.oid WHERE c.relkind = 'f'
        ) THEN 'a partition of it is a foreign table'
        WHEN _index.indrelid IS NULL THEN 'it has no primary key, so its rows have no names: add one'
        WHEN NOT _index.indimmediate THEN 'its primary key is deferrable, so two rows could have one name for a while'
    END;
    IF _reason IS NOT NULL THEN
        RAISE EXCEPTION 'cannot capture %: %', p_table, _reason USING ERRCODE = 'PJ060';
    END IF;
    RETURN (
        SELECT array_agg(a.attname::text ORDER BY k.place)
        FROM unnest(_index.indkey::smallint[]) WITH ORDINALITY AS k (attnum, place)
        INNER JOIN pg_attribute AS a ON a.attrelid = p_table AND k.attnum = a.attnum
        WHERE k.place <= _index.indnkeyatts
    );
END;
$$;
