"""Nothing lost and nothing twice of what the database holds, also when it goes back between any two statements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import examples
from tests.property.journal_model import Broken, RangeRow, WentBack
from tests.property.reader_model import Play, Reader
from tests.property.test_backtracking_model import EVERYTHING, LARGE, NEVER, READS, random_program

REMEMBER, GO_BACK, BEAT = 20, 21, 22
TRAVELS = [REMEMBER, REMEMBER, GO_BACK, BEAT]


class GoingBack(Play):
    """
    The database is kept as it is now and then, and goes back to that: a fail-over, or a restore in place.

    Args:
        reader: The class of the readers.
        page_size: Rows of a page.
        skew: How far the clock of another server may be behind.
    """

    def __init__(
        self, reader: type[Reader] = Reader, page_size: int = 3, skew: timedelta = timedelta(0)
    ) -> None:
        super().__init__(page_size=page_size, reader=reader, steps_back=skew, checks_horizon=False)
        self._kept = [self._state()]

    def _state(self) -> tuple[dict[str, object], list[RangeRow]]:
        return self.world.state(), [replace(row) for row in self.rows]

    def _act(self, code: int, a: int, b: int) -> None:
        match code:
            case 20:
                self._kept = [self._state(), *self._kept[:2]]
            case 21:
                self._go_back(a, fail_over=b % 2 == 0)
            case 22:
                self._beat()
            case 10:
                pass  # the clock of one server is steady here
            case _:
                super()._act(code, a, b)

    def _go_back(self, a: int, *, fail_over: bool) -> None:
        state, rows = self._kept[a % len(self._kept)]
        self.world.go_back(state, shown=fail_over)
        if fail_over and self._steps_back:
            super()._act(10, a, 31)
        if [(row.low, row.high) for row in rows] == [(row.low, row.high) for row in self.rows]:
            for row, kept in zip(self.rows, rows, strict=True):
                vars(row).update(vars(kept))
        else:  # a reader finds at once that its range is not there
            self.rows = [replace(row) for row in rows]
            pollers = [reader.poller for reader in self.readers]
            self.readers = [
                self._reader(self.world, row, self._machine, self._page_size, pollers[i % len(pollers)])
                for i, row in enumerate(self.rows)
            ]
            for index in range(len(self.readers)):
                self._start_reading(index)

    def _start_reading(self, index: int) -> None:
        try:
            next(self.readers[index].statements)
        except WentBack:  # its first poll shows what its process has not seen
            self._again(index)

    def _beat(self) -> None:
        """A heartbeat shows that those before it are gone."""
        for index, reader in enumerate(self.readers):
            if reader.life != self.world.lives:
                self._again(index)

    def _again(self, index: int) -> None:
        """As RangeSupervisor does it: from what is stored, in the same process."""
        old, row = self.readers[index], self.rows[index]
        new_server = old.compares_generations and old.generation != old.poller.generation
        self.readers[index] = self._reader(
            self.world, row, self._machine, self._page_size, old.poller,
            not_after=old.poller.back_to if new_server else None,
        )  # fmt: skip
        self._start_reading(index)

    def _step(self, index: int, *, saves: bool) -> None:
        try:
            super()._step(index, saves=saves)
        except WentBack:
            self._again(index)

    def drain(self) -> None:
        self._beat()
        super().drain()


numbers = st.integers(0, 31)
actions = st.tuples(st.sampled_from(EVERYTHING + TRAVELS + READS * 12), numbers, numbers)
skews = st.sampled_from([NEVER, LARGE])
quick = settings(max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow])


@given(st.lists(actions, min_size=40, max_size=120), st.integers(1, 5), skews)
@quick
def test_the_invariants_hold_when_the_database_goes_back(
    program: list[tuple[int, int, int]], page_size: int, skew: timedelta
) -> None:
    GoingBack(page_size=page_size, skew=skew).run(program)


@pytest.mark.parametrize("skew", [NEVER, LARGE], ids=["one clock", "another clock"])
@pytest.mark.parametrize(
    "seeds", [pytest.param(range(12), id="some"), pytest.param(range(50), id="many", marks=pytest.mark.slow)]
)
def test_long_histories_keep_the_invariants_when_the_database_goes_back(
    seeds: range, skew: timedelta
) -> None:
    back = 0
    for seed in seeds:
        play = GoingBack(page_size=1 + seed % 5, skew=skew)
        play.run(random_program(seed, EVERYTHING + TRAVELS + READS * 12, 400))
        back += play.world.lives

    assert back > 3 * len(seeds)  # it does go back


class ComparesNothing(Reader):
    """Stores its progress whatever is stored, as long as no heartbeat or poll shows a change."""

    compares_commits = False
    compares_lives = False


class ComparesItsRangeAlone(Reader):
    """Handles what was read of a database that is gone, where nothing was stored since."""

    compares_lives = False


class SeesNoGeneration(Reader):
    """Takes the polls of another server for those of the one before."""

    compares_generations = False


def breaks(reader: type[Reader], codes: Sequence[int], skew: timedelta) -> bool:
    for seed in range(1000):
        try:
            GoingBack(reader, 1 + seed % 5, skew).run(random_program(seed, [*codes, *READS * 8], 200))
        except Broken:
            return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reader", "skew"),
    [
        (ComparesNothing, NEVER),
        (ComparesItsRangeAlone, NEVER),
        pytest.param(SeesNoGeneration, LARGE, marks=pytest.mark.slow),
    ],
)
def test_the_model_finds_what_a_reader_loses_that_compares_less(
    reader: type[Reader], skew: timedelta
) -> None:
    assert breaks(reader, [*EVERYTHING, *TRAVELS], skew)
