"""Bugs of streams of events to browsers: what is left of those that have ended."""

from __future__ import annotations

from tests.mutants.layers import Pytest
from tests.mutants.seeding import in_python

_SERVER = "projections/subscriptions/sse/server.py"
_TESTS = "tests/integration/subscriptions/test_sse.py"

in_python(
    "streams-that-ended-stay-open",
    "a client that never reads keeps its connection without limit after its stream has ended",
    "projections/http/server_sent_events.py: let_go",
    "connection.abort()",
    "pass",
    Pytest(f"{_TESTS}::test_a_client_that_never_reads_is_cut_off_and_counts_until_then"),
)
in_python(
    "streams-that-ended-do-not-count",
    "clients that never read hold more connections than max_clients allows",
    f"{_SERVER}: EventStream._counted",
    "if connection is not None and unsent(connection):",
    "if False:",
    Pytest(f"{_TESTS}::test_a_client_that_never_reads_is_cut_off_and_counts_until_then"),
)
in_python(
    "removed-subscriptions-stay-open",
    "a stream stays open and silent for a minute after its subscription was removed",
    "projections/subscriptions/live_reader.py: LiveReader._keep",
    "if not keep and clock() < self._look_at:",
    "if not keep:",
    Pytest(f"{_TESTS}::test_a_stream_whose_subscription_is_removed_ends"),
)
