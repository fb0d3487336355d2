-- Who wants what, as _interests_v1 says and functions take it in arrays of such rows: the subscriptions of a group that get every event
-- of a topic of an entity type, or, alongside a condition, those of which it says so. Without a topic they want all of the type.
CREATE OR REPLACE VIEW projections.interests AS
SELECT
    s.condition_id,
    NULL::text AS topic,
    s.group_id,
    ARRAY[s.subscription_id] AS subscription_ids,
    NULL::text AS entity_type
FROM projections.subscriptions AS s;
