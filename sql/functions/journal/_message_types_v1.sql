-- The entity types of messages: events whose source no writer names, so that their ids are unique in the whole journal. The source
-- follows from a publisher's name, or from a tenant and the key of an order.
CREATE OR REPLACE FUNCTION projections._message_types_v1()
RETURNS text[]
LANGUAGE sql
IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT '{published,webhook-message}'::text[]
$$;
