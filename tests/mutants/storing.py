"""Bugs of the SQL functions that store progress and say who holds what."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.mutants.layers import Pytest
from tests.mutants.mutant import mutant
from tests.mutants.seeding import in_sql, sql

_CLAIMS = "tests/integration/offsets/test_claims.py"
_COMPARED = "tests/integration/offsets/test_compare_and_set.py"
_KEPT = "tests/integration/offsets/test_progress_kept.py"
_SAME = Pytest("tests/simulation/test_same_as_postgresql.py::test_long_schedules_have_the_same_answers[some]")

in_sql(
    "progress-without-an-epoch",
    "progress is stored without a look at the epoch of the range: the fence is gone",
    "functions/offsets/save_offsets_v1.sql",
    "AND r.epoch = p_epoch AND r.owner = p_owner AND r.commits = p_commits",
    "AND r.owner = p_owner AND r.commits = p_commits",
    Pytest(f"{_CLAIMS}::test_an_epoch_alone_keeps_an_older_holder_from_committing"),
)
in_sql(
    "progress-without-a-count",
    "progress is stored on a range that is not as it was left",
    "functions/offsets/save_offsets_v1.sql",
    "AND r.epoch = p_epoch AND r.owner = p_owner AND r.commits = p_commits",
    "AND r.epoch = p_epoch AND r.owner = p_owner",
    Pytest(f"{_COMPARED}::test_nothing_is_stored_on_a_range_that_is_not_as_it_was_left"),
    _SAME,
)
in_sql(
    "offsets-are-not-compared",
    "the offset of a source is set whatever it was",
    "functions/offsets/save_offsets_v1.sql",
    "AND o.source_id = s.source_id AND o.seq_nr = s.previous;",
    "AND o.source_id = s.source_id;",
    Pytest(f"{_COMPARED}::test_an_offset_moves_from_the_number_that_is_remembered_alone"),
)
in_sql(
    "horizons-are-not-compared",
    "a horizon is stored on a range that is not as it was left",
    "functions/offsets/save_horizons_v1.sql",
    "AND f.epoch = n.epoch AND f.commits = n.commits",
    "AND f.epoch = n.epoch",
    Pytest(f"{_COMPARED}::test_nothing_is_stored_on_a_range_that_is_not_as_it_was_left"),
)
in_sql(
    "releases-are-not-compared",
    "a range is given back whatever was stored since",
    "functions/holding/release_range_v1.sql",
    "AND r.epoch = p_epoch AND r.owner = p_owner AND r.commits = p_commits",
    "AND r.epoch = p_epoch AND r.owner = p_owner",
    Pytest(f"{_COMPARED}::test_nothing_is_stored_on_a_range_that_is_not_as_it_was_left"),
)
in_sql(
    "any-generation-will-do",
    "progress is stored in a database that went back in time",
    "functions/offsets/_same_generation_v1.sql",
    "w.owner = p_owner AND w.beats >= p_answered",
    "w.owner = p_owner",
    Pytest(f"{_COMPARED}::test_nothing_is_stored_until_a_worker_has_learnt_that_the_database_went_back"),
)
in_sql(
    "leases-do-not-count",
    "a range is taken from an owner whose lease runs",
    "functions/holding/heartbeat_v1.sql",
    "w.owner = r.owner AND w.lease_until > _now)",
    "w.owner = r.owner AND w.lease_until < _now)",
    _SAME,
)
in_sql(
    "leases-never-end",
    "a range is never taken from an owner that has crashed",
    "functions/holding/heartbeat_v1.sql",
    "w.owner = r.owner AND w.lease_until > _now)",
    "w.owner = r.owner)",
    Pytest(f"{_CLAIMS}::test_a_crashed_holder_is_followed_when_its_lease_ends"),
)
in_sql(
    "claims-keep-the-epoch",
    "a range that is taken over keeps its epoch",
    "functions/holding/heartbeat_v1.sql",
    "SET epoch = r.epoch + 1, owner = p_owner, claimed_at = _now",
    "SET owner = p_owner, claimed_at = _now",
    _SAME,
)
in_sql(
    "imports-do-not-hold-eviction",
    "offsets are evicted that an import which was not read yet needs",
    "functions/offsets/_evict_offsets_v1.sql",
    "AND i.import_id > r.import_id",
    "AND FALSE",
    Pytest(f"{_KEPT}::test_an_eviction_before_an_import_was_read_does_not_lose_it"),
)
in_sql(
    "the-newest-handled-is-of-offsets-alone",
    "the newest time that a range has handled is of offsets alone, where events before them may be stamped later",
    "functions/offsets/save_offsets_v1.sql",
    "greatest(r.handled_until, p_handled_until, ",
    "greatest(r.handled_until, ",
    Pytest(f"{_COMPARED}::test_the_newest_time_of_a_batch_is_kept_whichever_of_its_events_has_it"),
)
in_sql(
    "keeping-waits-for-who-subscribes",
    "consumers wait for transactions that subscribe, and do not read meanwhile",
    "functions/subscriptions/keep_subscriptions_v1.sql",
    "FOR NO KEY UPDATE SKIP LOCKED",
    "FOR NO KEY UPDATE",
    Pytest(
        "tests/integration/subscriptions/test_consumer_sharing.py::"
        "test_a_consumer_reads_while_somebody_subscribes_for_its_group"
    ),
)
in_sql(
    "evicts-what-is-not-handled",
    "offsets are evicted by the clock, not by the horizons",
    "functions/offsets/_evict_offsets_v1.sql",
    "THEN h.horizon - p_retention",
    "THEN clock_timestamp() + interval '1 hour'",
    Pytest(f"{_KEPT}::test_an_eviction_while_running_makes_nothing_look_unhandled"),
)
in_sql(
    "ranges-are-shared-unevenly",
    "what does not go into equal shares goes to nobody in particular",
    "functions/holding/_share_ranges_v1.sql",
    "<= _ranges % _members)::integer",
    "< _ranges % _members)::integer",
    Pytest("tests/property/test_assignment.py"),
)
in_sql(
    "inline-without-a-look-at-the-offset",
    "events are handled inline although those before them were not",
    "functions/offsets/_begin_inline_v1.sql",
    "THEN a.handled = a.first - 1",
    "THEN TRUE",
    Pytest(
        "tests/integration/running/test_inline.py"
        "::TestWhoHandles::test_a_source_that_has_an_event_between_what_is_handled_and_what_is_appended"
    ),
)
in_sql(
    "retention-passes-the-slowest",
    "a partition is dropped that one range of several has not read",
    "functions/offsets/_projection_holders_v1.sql",
    "coalesce(min(least(r.horizon, i.since)), '-infinity') AS since",
    "coalesce(max(least(r.horizon, i.since)), '-infinity') AS since",
    Pytest("tests/integration/partitions/test_retention.py::test_the_slowest_range_of_a_projection_counts"),
)


@mutant(
    "effects-without-any-fence",
    "a batch is stored whoever holds its range, and whatever was handled since",
    "sql/functions/offsets/save_offsets_v1.sql",
    Pytest(f"{_CLAIMS}::test_a_holder_that_was_replaced_commits_nothing"),
)
@contextmanager
def _without_any_fence() -> Iterator[None]:
    file = "functions/offsets/save_offsets_v1.sql"
    with (
        sql(file, "AND r.epoch = p_epoch AND r.owner = p_owner AND r.commits = p_commits\n", "\n"),
        sql(
            file,
            "AND (SELECT projections._same_generation_v1(p_owner, p_answered, p_timeline, p_started_at));",
            ";",
        ),
        sql(
            file, "AND o.source_id = s.source_id AND o.seq_nr = s.previous;", "AND o.source_id = s.source_id;"
        ),
        sql(
            file,
            "EXCEPTION WHEN unique_violation THEN\n            RAISE EXCEPTION",
            "EXCEPTION WHEN unique_violation THEN\n            RAISE NOTICE",
        ),
        sql(file, "IF _saved <> _all THEN", "IF FALSE THEN"),
        sql("functions/offsets/_save_most_offsets_v1.sql", "AND o.seq_nr = s.previous;", ";"),
    ):
        yield
