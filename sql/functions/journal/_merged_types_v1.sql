-- The query of a page of several entity types, in the order of the log: the part of the index of each type is walked by itself, and
-- the next row is the first of all of theirs (a Merge Append), so that a page reads what it has, and one row more of each type.
-- Parameters: $1, $2 the times between which it looks; $3 to $6 the position after which it begins; $7, $8 the slices; $9 how many rows.
CREATE OR REPLACE FUNCTION projections._merged_types_v1(p_entity_types text[], p_columns text)
RETURNS text
LANGUAGE plpgsql
IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _order CONSTANT text := 'ORDER BY e.db_timestamp, e.slice, e.source_id, e.seq_nr';
BEGIN
    RETURN (
        SELECT format(
            'SELECT * FROM (%s) AS e %s LIMIT $9',
            string_agg(
                format(
                    '(SELECT %s FROM projections.events AS e WHERE e.entity_type = %L AND e.db_timestamp >= $1 AND e.db_timestamp <= $2 '
                    'AND (e.db_timestamp, e.slice, e.source_id, e.seq_nr) > ($3, $4::smallint, $5, $6) '
                    'AND e.slice BETWEEN $7 AND $8 %s)',
                    p_columns, t.entity_type, _order
                ), ' UNION ALL '
            ), _order
        )
        FROM unnest(p_entity_types) AS t (entity_type)
    );
END;
$$;
