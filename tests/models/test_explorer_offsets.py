"""What is accepted is what a record of all that was handled says, whatever happens at a scope."""

from __future__ import annotations

import pytest

from tests.models.breadth_first import Lost
from tests.models.offsets_explorer import OffsetExploration
from tests.mutants.catalogue import MUTANTS

SLOW = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.mark.parametrize(
    ("sources", "events", "cache"),
    [
        (1, 3, 1),
        (2, 2, 1),
        pytest.param(2, 3, 1, marks=SLOW),
        pytest.param(2, 3, 2, marks=SLOW),
    ],
)
def test_what_is_accepted_is_what_a_record_of_all_says(sources: int, events: int, cache: int) -> None:
    assert OffsetExploration(sources, events, cache=cache).run() > 500


@pytest.mark.parametrize(
    "mutant",
    [
        "evicted-sources-begin-again",
        "unknown-sources-are-accepted",
        "what-is-accepted-counts-before-the-commit",
        "an-unknown-outcome-is-remembered",
        "parked-sources-go-on",
        "gaps-are-not-filled",
        "gaps-are-accepted",
        "gaps-are-duplicates",
    ],
)
def test_a_wrong_verdict_is_found(mutant: str) -> None:
    with MUTANTS[mutant].seeded(), pytest.raises(Lost):
        OffsetExploration(1, 3, cache=1).run()
