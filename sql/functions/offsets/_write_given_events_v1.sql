-- Runs a statement of a read model over given events, whose columns are $1 to $8 in it: in the transaction that appends them. It has the
-- caller's rights. What it computes must not depend on the settings of a session, which the caller keeps; the names of tables in it are
-- qualified.
CREATE OR REPLACE FUNCTION projections._write_given_events_v1(
    p_statement text,
    p_source_ids text[],
    p_seq_nrs bigint[],
    p_timestamps timestamptz[],
    p_event_ids uuid[],
    p_entity_types text[],
    p_event_types text[],
    p_versions smallint[],
    p_payloads text[]
)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET timezone = 'UTC'
SET datestyle = 'ISO, YMD'
SET intervalstyle = 'postgres'
AS $$
BEGIN
    EXECUTE p_statement
    USING p_source_ids, p_seq_nrs, p_timestamps, p_event_ids, p_entity_types, p_event_types, p_versions, p_payloads;
END;
$$;
