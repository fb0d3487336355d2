-- The time of the database.
SELECT
    clock_timestamp() AS now,
    0::bigint AS import_id
