-- Trigger: appends what _describe_changes_v1 has handed over. It has the rights of the schema's owner, so that whoever
-- writes a captured table needs none here; so it touches texts alone, no value of the table, and appends under the
-- names that were fixed when the table was captured.
-- Raises PJ063 where what was handed over is not of this table, or another trigger could have handed it over.
CREATE OR REPLACE FUNCTION projections._append_changes_v1()
RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _place constant text := 'projections.captured_' || pg_trigger_depth();
    _entity_type constant text := TG_ARGV[0]::json ->> 'entity_type';
    _part text;
    _source_ids text[];
    _event_types text[];
    _payloads text[];
    _metadata text[];
    _own boolean;
BEGIN
    -- Whoever may make triggers on the table could have one put events of its own in the place of those that were described.
    IF TG_NAME <> 'projections_capture_2_append' OR EXISTS (
        SELECT FROM pg_trigger AS t
        WHERE t.tgrelid = TG_RELID AND t.tgname > 'projections_capture_1' AND t.tgname < 'projections_capture_2_append'
        AND t.tgfoid <> 'projections._describe_changes_v1'::regproc
    ) THEN
        RAISE EXCEPTION 'a trigger of table % fires between those of its capture: give it another name', TG_RELID::regclass
        USING ERRCODE = 'PJ063', HINT = 'Names between projections_capture_1 and projections_capture_2_append are for the capture.';
    END IF;
    FOR _portion IN 1 .. coalesce(nullif(current_setting(_place, TRUE), ''), '0')::integer LOOP
        _part := _place || '_' || _portion;
        SELECT
            array_agg(c.s #>> '{}'), array_agg(_entity_type || '.' || c.o), array_agg(c.p), array_agg(c.m),
            bool_and((starts_with(c.s #>> '{}', _entity_type || '/') AND c.o IN ('insert', 'update', 'delete')) IS TRUE)
        INTO _source_ids, _event_types, _payloads, _metadata, _own
        FROM unnest(
            string_to_array(current_setting(_part || '_s'), E'\x01')::json[], string_to_array(current_setting(_part || '_o'), E'\x01'),
            string_to_array(current_setting(_part || '_p'), E'\x01', ''), string_to_array(current_setting(_part || '_m'), E'\x01', '')
        ) AS c (s, o, p, m)
        WHERE c.p IS NOT NULL;
        IF NOT _own THEN
            RAISE EXCEPTION 'the changes handed over are not of table %', TG_RELID::regclass USING ERRCODE = 'PJ063';
        END IF;
        PERFORM set_config(_part || part.suffix, '', TRUE) FROM (VALUES ('_s'), ('_o'), ('_p'), ('_m')) AS part (suffix);
        CONTINUE WHEN _source_ids IS NULL;  -- the table's function wants no event of them
        PERFORM projections.append_events_v1(
            _source_ids, array_fill(_entity_type, ARRAY[cardinality(_source_ids)]), _event_types, _payloads,
            p_metadata => _metadata
        );
    END LOOP;
    PERFORM set_config(_place, '0', TRUE);
    RETURN NULL;
END;
$$;
