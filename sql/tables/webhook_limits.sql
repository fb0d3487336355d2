-- What endpoints may ask for, a row for each. It may be changed at any time: an endpoint that asks for more, or less, is held to
-- it when it is next sent to, and what is stored of it stays.
CREATE TABLE IF NOT EXISTS projections.webhook_limits (
    name text PRIMARY KEY,
    -- NULL: no bound but that of the library. Times are in seconds.
    least numeric,
    most numeric,
    CONSTRAINT name_is_known CHECK (
        name IN ('max_in_flight', 'timeout', 'pause', 'attempts', 'breaker_failures', 'breaker_pause')
    ),
    CONSTRAINT bounds_are_positive CHECK (least >= 0 AND most > 0),
    CONSTRAINT bounds_are_within_reach CHECK (least <= 1000000000 AND most <= 1000000000),
    CONSTRAINT counts_are_whole CHECK (
        name NOT IN ('max_in_flight', 'attempts', 'breaker_failures') OR (least = trunc(least) AND most = trunc(most))
    ),
    CONSTRAINT least_is_not_above_most CHECK (least <= most)
);
INSERT INTO projections.webhook_limits (name, least, most) VALUES
('max_in_flight', 1, 100), ('timeout', 1, 30), ('pause', 1, NULL), ('attempts', NULL, 25), ('breaker_failures', NULL, 100),
('breaker_pause', 5, NULL)
ON CONFLICT (name) DO NOTHING;
