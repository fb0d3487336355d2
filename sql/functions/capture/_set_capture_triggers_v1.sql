-- Makes the triggers of a captured table or partition, and drops those that its settings leave out; without operations
-- all. Triggers of one statement fire in the order of their names: what is described first is then appended.
CREATE OR REPLACE FUNCTION projections._set_capture_triggers_v1(p_table regclass, p_operations text[], p_settings json)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _trigger record;
BEGIN
    FOR _trigger IN
        SELECT
            format('projections_capture_1_%s', lower(o.operation)) AS name, o.operation = ANY(p_operations) AS wanted, format(
                'AFTER %s ON %s REFERENCING %s FOR EACH STATEMENT EXECUTE FUNCTION projections._describe_changes_v1(%L)',
                o.operation, p_table, o.referencing, p_settings
            ) AS definition
        FROM (VALUES
            ('INSERT', 'NEW TABLE AS new_rows'), ('DELETE', 'OLD TABLE AS old_rows'),
            ('UPDATE', 'OLD TABLE AS old_rows NEW TABLE AS new_rows')
        ) AS o (operation, referencing)
        UNION ALL
        SELECT 'projections_capture_2_append', cardinality(p_operations) > 0, format(
            'AFTER %s ON %s FOR EACH STATEMENT EXECUTE FUNCTION projections._append_changes_v1(%L)',
            array_to_string(p_operations, ' OR '), p_table, p_settings
        )
        UNION ALL
        -- The last of its kind to fire: what others leave out, or change, is not counted. Each partition gets its own from its parent.
        SELECT 'zz_projections_capture_moves', 'UPDATE' = ANY(p_operations) AND json_array_length(p_settings -> 'moved_by') > 0, format(
            'BEFORE UPDATE ON %s FOR EACH ROW WHEN (%s) EXECUTE FUNCTION projections._note_move_v1()', p_table, (
                SELECT string_agg(format('OLD.%1$I IS DISTINCT FROM NEW.%1$I', m.name), ' OR ')
                FROM json_array_elements_text(p_settings -> 'moved_by') AS m (name)
            )
        )
        WHERE NOT (SELECT c.relispartition FROM pg_class AS c WHERE c.oid = p_table)
        UNION ALL
        SELECT 'projections_capture_truncate', 'DELETE' = ANY(p_operations), format(
            'BEFORE TRUNCATE ON %s FOR EACH STATEMENT EXECUTE FUNCTION projections._refuse_truncate_v1()', p_table
        )
    LOOP
        IF _trigger.wanted THEN
            EXECUTE format('CREATE OR REPLACE TRIGGER %I %s', _trigger.name, _trigger.definition);
        ELSIF EXISTS (SELECT FROM pg_trigger AS t WHERE t.tgrelid = p_table AND t.tgname = _trigger.name) THEN
            EXECUTE format('DROP TRIGGER %I ON %s', _trigger.name, p_table);
        END IF;
    END LOOP;
END;
$$;
