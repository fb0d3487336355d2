-- A fresh install has what all migrations would have made, so all of them are recorded; guard.sql says how many.
INSERT INTO projections.schema_versions (version)
SELECT n.version FROM generate_series(1, current_setting('projections.schema_version')::integer) AS n (version)
ON CONFLICT (version) DO NOTHING;
