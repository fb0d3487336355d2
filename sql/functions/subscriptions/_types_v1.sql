-- Events of which nothing is known but their type, one for each topic, in the order of the topics.
CREATE OR REPLACE FUNCTION projections._types_v1(p_entity_type text, p_topics text[])
RETURNS SETOF projections.matchable_events
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT (ROW(NULL, NULL, NULL, NULL, NULL, p_entity_type, t.topic, t.topic, NULL, NULL, NULL, NULL)::projections.matchable_events).*
    FROM unnest(p_topics) WITH ORDINALITY AS t (topic, place) ORDER BY t.place
$$;
