-- Text as json. The type json takes escapes that no string can hold (\u0000, half a surrogate pair): jsonb refuses them.
CREATE OR REPLACE FUNCTION projections.checked_json_v1(p_text text)
RETURNS json
LANGUAGE sql
IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN strpos(p_text, '\u') > 0 AND p_text::jsonb IS NULL THEN NULL ELSE p_text::json END;
