"""Nothing appears at or before a time that was settled, however writers begin, stamp, prepare and end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from journal.backtracking import CLOCK_MARGIN
from journal.writers import WritersLook
from spark_projections.reading.horizon import SettledTime
from tests.fixtures.examples import examples

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
WRITERS = st.integers(0, 3)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "end", "look", "look", "prepare"]), WRITERS, st.integers(0, 60)
    ),
    max_size=60,
)


class Model:
    """A database whose transactions hold the lock from their first append to their end."""

    def __init__(self) -> None:
        self.now = NOON
        self.names: dict[int, str] = {}
        self.began: dict[int, datetime] = {}
        self.open: dict[int, list[datetime]] = {}
        self.made = 0

    def append(self, writer: int) -> None:
        if writer not in self.open:
            self.made += 1
            self.names[writer], self.began[writer], self.open[writer] = f"{writer}/{self.made}", self.now, []
        if not self.names[writer].startswith("p"):
            self.open[writer].append(self.now)

    def prepare(self, writer: int) -> None:
        if writer in self.open and not self.names[writer].startswith("p"):
            self.made += 1
            self.names[writer] = f"p{self.made}"

    def end(self, writer: int) -> list[datetime]:
        self.names.pop(writer, None)
        return self.open.pop(writer, [])

    def look(self) -> WritersLook:
        return WritersLook(self.now, frozenset(self.names.values()))

    def started(self, hidden: bool) -> list[datetime | None]:
        return [
            None if hidden or self.names[writer].startswith("p") else self.began[writer]
            for writer in self.names
        ]


@settings(max_examples=examples(300))
@given(STEPS, st.booleans())
def test_nothing_appears_at_or_before_a_settled_time(steps: list[tuple[str, int, int]], hidden: bool) -> None:
    model, settled = Model(), SettledTime(NOON - timedelta(days=1))
    passed = settled.start

    for step, writer, milliseconds in [*steps, *(("end", writer, 0) for writer in range(4))]:
        model.now += timedelta(milliseconds=milliseconds)
        match step:
            case "look":
                passed = max(passed, settled.after(model.look(), model.started(hidden)))
            case "end":
                assert all(stamp > passed for stamp in model.end(writer))
            case _:
                getattr(model, step)(writer)


@given(st.integers(0, 19))
def test_a_small_step_back_of_the_clock_does_no_harm(milliseconds: int) -> None:
    model, settled = Model(), SettledTime(NOON - timedelta(days=1))

    passed = settled.after(model.look())
    model.now -= timedelta(milliseconds=milliseconds)
    model.append(0)

    assert all(stamp > passed for stamp in model.end(0))


def test_an_open_writer_holds_the_time_where_it_began_and_others_do_not() -> None:
    model, settled = Model(), SettledTime(NOON - timedelta(days=1))
    settled.after(model.look())
    model.append(0)
    times: list[Any] = []

    for _ in range(3):
        model.now += timedelta(seconds=10)
        times.append(settled.after(model.look()))

    assert times == [NOON - CLOCK_MARGIN] * 3
    model.end(0)
    assert settled.after(model.look()) == model.now - CLOCK_MARGIN
