"""The reader that looks twice loses nothing, whatever happens at a scope, and wrong ones do."""

from __future__ import annotations

import pytest

from tests.models.breadth_first import Lost
from tests.models.interval_explorer import IntervalExploration
from tests.mutants.catalogue import MUTANTS


@pytest.mark.parametrize(
    ("writers", "ticks", "crashes", "on"),
    [
        (1, 4, 1, "primary"),
        (1, 4, 1, "standby"),
        pytest.param(2, 3, 0, "primary", marks=pytest.mark.slow),
        (2, 3, 0, "standby"),
        pytest.param(2, 4, 1, "primary", marks=[pytest.mark.slow, pytest.mark.timeout(1800)]),
        pytest.param(2, 4, 1, "standby", marks=[pytest.mark.slow, pytest.mark.timeout(1800)]),
    ],
)
def test_nothing_is_lost(writers: int, ticks: int, crashes: int, on: str) -> None:
    exploration = IntervalExploration(writers, ticks, crashes=crashes, standby=on == "standby")

    assert exploration.run() > 5000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutant", "writers", "standby"),
    [
        ("interval-never-reads-again", 1, False),
        ("interval-horizon-is-its-position", 1, False),
        ("interval-trusts-the-clock-of-a-standby", 1, True),
        ("interval-waits-for-the-time-to-move", 2, True),
        ("interval-takes-commits-of-one-time-for-one", 2, True),
    ],
)
def test_a_wrong_machine_loses_an_event(mutant: str, writers: int, standby: bool) -> None:
    with MUTANTS[mutant].seeded(), pytest.raises(Lost):
        IntervalExploration(writers, 3, crashes=2 - writers, standby=standby).run()
