-- A subscription as a condition sees it, under the name s. The only thing that the role of conditions may read.
CREATE OR REPLACE VIEW projections.subscriptions_at_hand AS
SELECT
    s.subscription_id,
    s.group_id,
    s.condition_id,
    s.params,
    s.topics,
    s.patterns,
    s.entity_types,
    s.created_at
FROM projections.subscriptions AS s;
