-- A poll at the primary, then where its log ends: every commit that the poll has seen ended is before that. The poll is made to its
-- end before the place is looked up, for the place is selected from what it has returned. What is inserted counts, not what is
-- written: with synchronous_commit = off, a lock is released before the commit is written. Nobody knows it on a standby.
-- The sizes say where pages begin: a place behind the head of a page is, for whoever replays, the end of the page before.
WITH polled AS MATERIALIZED (SELECT p.* FROM standby_poll AS p)

SELECT
    polled.*,
    CASE
        WHEN NOT pg_is_in_recovery() THEN pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint
    END AS inserted_until,
    current_setting('wal_block_size')::bigint AS page_size,
    pg_size_bytes(current_setting('wal_segment_size')) AS segment_size
FROM polled
