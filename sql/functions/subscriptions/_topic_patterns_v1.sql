-- What subscriptions with patterns of topics are found by: a pattern is a topic in which * stands for any characters without a
-- dot, and **, alone between dots, for one or more segments. A topic matches one if it is LIKE any of likes and, unless these are
-- NULL, matches any of regexes. The first lets few topics pass; the second are needed for * alone, which LIKE cannot say.
-- projections/interests/topics.py says the same in Python. Raises PJ081 for a pattern that is invalid.
CREATE OR REPLACE FUNCTION projections._topic_patterns_v1(p_topics text[], OUT likes text[], OUT regexes text[])
LANGUAGE plpgsql
IMMUTABLE
STRICT
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _invalid CONSTANT text := (
        SELECT t.topic FROM unnest(p_topics) AS t (topic)
        WHERE coalesce(char_length(t.topic), 0) NOT BETWEEN 1 AND 255 OR '.' || t.topic || '.' LIKE '%..%'
            OR t.topic ~ E'[^.][*][*]|[*][*][^.]'
        LIMIT 1
    );
BEGIN
    IF char_length(_invalid) NOT BETWEEN 1 AND 255 THEN
        RAISE EXCEPTION 'a topic has 1 to 255 characters, not %', char_length(_invalid) USING ERRCODE = 'PJ081';
    ELSIF '.' || _invalid || '.' LIKE '%..%' THEN
        RAISE EXCEPTION 'the topic % has an empty segment: write names with one dot between them', quote_literal(left(_invalid, 100))
        USING ERRCODE = 'PJ081';
    ELSIF _invalid IS NOT NULL THEN
        RAISE EXCEPTION 'the topic % has ** as part of a segment: it stands for whole segments, and * for any characters within one',
            quote_literal(left(_invalid, 100)) USING ERRCODE = 'PJ081';
    END IF;
    likes := ARRAY(
        SELECT regexp_replace(regexp_replace(t.topic, E'[\\\\%_]', E'\\\\\\&', 'g'), '[*]+', '%', 'g')
        FROM unnest(p_topics) WITH ORDINALITY AS t (topic, place) ORDER BY t.place
    );
    IF EXISTS (SELECT FROM unnest(p_topics) AS t (topic) WHERE strpos(replace(t.topic, '**', ''), '*') > 0) THEN
        regexes := ARRAY(
            SELECT '^' || replace(regexp_replace(
                regexp_replace(t.topic, E'[][\\\\.^$+?{}()|]', E'\\\\\\&', 'g'), '(?<![*])[*](?![*])', '[^.]*', 'g'
            ), '**', '.*') || '$'
            FROM unnest(p_topics) WITH ORDINALITY AS t (topic, place) ORDER BY t.place
        );
    END IF;
END;
$$;
