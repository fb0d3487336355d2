"""Bugs of what tenants share: places in a sender, and the circuits of endpoints."""

from __future__ import annotations

from tests.mutants.layers import Pytest
from tests.mutants.seeding import in_python

_SHARES = "projections/webhooks/fair_shares.py"
_TESTS = "tests/integration/webhooks/wire/test_shares.py"

in_python(
    "shares-are-whole",
    "a tenant whose receivers hang takes all places of a process",
    f"{_SHARES}: Shares._has_room",
    "and held < math.ceil(share * (self._places - self._busy + held))",
    "",
    Pytest(f"{_TESTS}::TestShares::test_one_has_its_share_and_others_have_the_rest"),
)
in_python(
    "shares-are-served-as-they-came",
    "a tenant that waits with many is served before others",
    f"{_SHARES}: Shares._leave",
    "self._waiting.move_to_end(tenant)",
    "pass",
    Pytest(f"{_TESTS}::TestShares::test_those_who_wait_are_served_in_turn"),
)
in_python(
    "shares-leak-when-cancelled",
    "a place that is given to one that is cancelled at the same time is lost",
    f"{_SHARES}: Shares.take",
    "self.give_back(tenant)",
    "pass",
    Pytest(f"{_TESTS}::TestShares::test_who_is_cancelled_when_its_place_has_come_gives_it_back"),
)
in_python(
    "hosts-are-not-limited-in-a-second",
    "a host that answers at once gets any number of requests in a second",
    f"{_SHARES}: Hosts.take",
    "loop.time() + _SECOND",
    "loop.time()",
    Pytest(f"{_TESTS}::TestHosts::test_a_host_that_answers_at_once_gets_no_more_than_its_limit_in_a_second"),
)
