"""Bugs of the delivery log: pages, cursors, filters, tenants, what is counted."""

from __future__ import annotations

from tests.mutants.layers import Pytest
from tests.mutants.seeding import in_python, in_sql

_PAGING = "projections/webhooks/log/paging.py"
_LOG = "projections/webhooks/log/postgres.py"
_TESTS = "tests/integration/webhooks/log"
_PAGES = f"{_TESTS}/test_paging.py"
_CURSORS = f"{_TESTS}/test_cursors.py"
_ROWS = f"{_TESTS}/test_rows.py"
_METRICS = f"{_TESTS}/test_metrics.py"
_SHAPE = f"{_TESTS}/test_metrics_shape.py"

in_sql(
    "log-pages-begin-with-the-last-row",
    "each page of the log repeats the last row of the one before",
    "functions/webhooks/_log_walk_v1.sql",
    "CASE WHEN p_inclusive THEN '=' ELSE '' END",
    "'='",
    Pytest(f"{_PAGES}::TestPaging::test_01_forward_every_row_comes_once"),
)
in_sql(
    "log-pages-lose-rows-of-one-time",
    "rows of the same time as the last row of a page are on none",
    "functions/webhooks/_log_walk_v1.sql",
    "(CASE WHEN p_ascending THEN '>=' ELSE '<=' END, p_time)",
    "(CASE WHEN p_ascending THEN '>' ELSE '<' END, p_time)",
    Pytest(f"{_PAGES}::test_identical_timestamps_tie_on_the_id_by_its_bytes"),
)
in_sql(
    "log-pages-walk-all-rows-of-a-key",
    "what is looked at for a page is not limited to what another tenant may see",
    "functions/webhooks/_log_walked_v1.sql",
    "coalesce(p_visible, 'TRUE')",
    "'TRUE'",
    Pytest(f"{_ROWS}::TestRows::test_16_an_event_of_another_tenant_is_none"),
)
in_sql(
    "log-short-pages-are-the-last",
    "a list whose filters let little pass ends where a page has looked at as many rows as it may",
    "functions/webhooks/_log_walked_v1.sql",
    "r.place = %4$s AS is_last",
    "FALSE AS is_last",
    Pytest(f"{_TESTS}/test_short_pages.py::test_short_pages_have_every_row_once_both_ways[7]"),
)
in_python(
    "log-pages-skip-a-row",
    "the row behind a page is on none",
    f"{_PAGING}: page_of",
    "end = rows[-1]",
    "end = step.row",
    Pytest(f"{_PAGES}::TestPaging::test_01_forward_every_row_comes_once"),
)
in_python(
    "log-cursors-are-of-any-list",
    "a cursor that was made for other filters is taken",
    f"{_PAGING}: Cursors.decode",
    "if f\"{rest['order']}:{rest['digest']}\" != self._binding:",
    "if False:",
    Pytest(f"{_CURSORS}::TestCursors::test_a_cursor_of_another_order_or_tenant_or_filter_is_refused"),
)
in_python(
    "log-cursors-outlive-a-restore",
    "a cursor of a state that a fail-over has lost goes on, and skips what is new",
    f"{_PAGING}: Cursors.decode",
    'self._check(cursor, rest["generation"])',
    "pass",
    Pytest(f"{_CURSORS}::test_a_cursor_of_a_lost_timeline_or_ahead_of_the_database_is_refused"),
)
in_python(
    "log-shows-events-of-others",
    "an attempt is shown with an event of another tenant that has its id",
    f"{_LOG}: _with_events",
    "events.get((one.event_id, one.tenant))",
    "next((each for each in events.values() if each.event_id == one.event_id), None)",
    Pytest(f"{_ROWS}::TestTenants::test_an_attempt_is_not_shown_with_an_event_of_another_tenant"),
)
in_sql(
    "log-counts-all-tenants",
    "metrics of a tenant count what others have",
    "functions/webhooks/_log_metrics_v1.sql",
    "projections._log_any_of_v1('r.tenant', p_tenants), _filters",
    "_filters",
    Pytest(f"{_METRICS}::TestEvents::test_07_other_tenants_do_not_count"),
)
in_sql(
    "log-counts-the-end",
    "what was at the end of a time is counted for it, and for the next one",
    "functions/webhooks/_log_metrics_v1.sql",
    "%1$s < %3$L::timestamptz",
    "%1$s <= %3$L::timestamptz",
    Pytest(f"{_SHAPE}::TestBeyond::test_start_is_within_and_end_is_not"),
)
in_sql(
    "log-counts-manual-ones-as-first",
    "an attempt that somebody asked for by hand counts as a first one",
    "functions/webhooks/_log_metrics_v1.sql",
    "r.attempt_number = 1 AND NOT r.manual",
    "r.attempt_number = 1",
    Pytest(f"{_METRICS}::TestAttempts::test_04_retries"),
)
in_sql(
    "log-months-begin-in-local-time",
    "a month of metrics begins by the time zone of the session",
    "functions/webhooks/_log_bucket_v1.sql",
    "* 12 + extract(MONTH FROM %2$s AT TIME ZONE ''UTC'')",
    "* 12 + extract(MONTH FROM %2$s)",
    Pytest(
        "tests/integration/webhooks/log/test_kept.py::test_months_begin_in_utc_whatever_the_zone_of_the_session"
    ),
)
in_sql(
    "log-counts-an-event-once",
    "an event for several endpoints counts for all of them where one is asked for",
    "functions/webhooks/_log_metrics_v1.sql",
    "CASE WHEN _by_endpoint THEN projections._log_any_of_v1('d.endpoint_id', c.chosen) END",
    "NULL",
    Pytest(f"{_SHAPE}::TestBeyond::test_an_event_for_several_endpoints_counts_for_each_that_is_wanted"),
)
in_python(
    "log-rates-are-of-the-whole-time",
    "rates of a span of time are over all of them",
    "projections/webhooks/log/metrics.py: _seconds",
    "if start is None or query.granularity is None:",
    "if True:",
    Pytest(f"{_METRICS}::TestEvents::test_10_rate_of_an_hour"),
)
in_sql(
    "erasing-takes-messages-of-others",
    "a tenant erases a message of another one",
    "functions/webhooks/_erase_sent_v1.sql",
    "CONTINUE WHEN _sent.tenant IS NULL OR _sent.tenant <> p_tenant;",
    "CONTINUE WHEN _sent.tenant IS NULL;",
    Pytest(
        "tests/integration/webhooks/test_erasing.py"
        "::TestOne::test_by_the_id_that_it_was_sent_under_and_only_by_its_tenant"
    ),
)
in_sql(
    "log-pages-of-an-endpoint-lose-events",
    "where an endpoint has just more events than a page, some of them are on none",
    "functions/webhooks/_log_few_events_v1.sql",
    "p_most + 1",
    "p_most",
    Pytest(f"{_PAGES}::TestPaging::test_01_forward_every_row_comes_once"),
)
in_python(
    "log-pages-are-cut-by-rows-alone",
    "a page of the delivery log has as many rows as were asked for, however long they are",
    "projections/webhooks/log/paging.py: page_of",
    "size += step.size",
    "size += 0",
    Pytest(
        "tests/integration/webhooks/log/test_kept.py::test_a_page_of_attempts_has_as_many_as_its_bytes_allow"
    ),
)
