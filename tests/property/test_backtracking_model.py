"""Nothing lost, nothing twice, in order, whatever happens between any two statements of a reader."""

from __future__ import annotations

import random
from collections.abc import Generator, Sequence
from datetime import datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from journal import Backtracking, IntervalBacktracking, Position, ReadEvents, WriterLockBacktracking
from journal.backtracking import END_OF_TIME, WritersPoll
from tests.fixtures.examples import examples
from tests.mutants.catalogue import MUTANTS
from tests.property.journal_model import INSTANT, MARGIN, SOURCES, T0, Broken, Standby
from tests.property.reader_model import BesidePrimary, MergesTypes, Play, Reader, writer_lock

Program = list[tuple[int, int, int]]

WRITES = [0, 0, 1, 2, 2, 2, 3, 3, 4, 4, 4, 5, 6, 7, 8]
EVERYTHING = [*WRITES, 9, 10, 11, 12, 13]
READS = [14]
REPLAYS = [15]

LATE_BY = timedelta(milliseconds=300)
NEVER = timedelta(0)
LARGE = timedelta(milliseconds=300)

numbers = st.integers(0, 31)
actions = st.tuples(st.sampled_from(EVERYTHING + READS * 12), numbers, numbers)
programs = st.lists(actions, min_size=40, max_size=120)
page_sizes = st.integers(1, 5)
readers = st.sampled_from([Reader, MergesTypes])
SEEDS = [
    pytest.param(range(20), id="some"),
    pytest.param(range(20, 1000), id="many", marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
]
quick = settings(max_examples=examples(80), suppress_health_check=[HealthCheck.too_slow])


def random_program(seed: int, codes: Sequence[int], length: int) -> Program:
    chance = random.Random(seed)
    return [(chance.choice(codes), chance.randrange(32), chance.randrange(32)) for _ in range(length)]


def interval(start: datetime, import_id: int, late_by: timedelta = LATE_BY) -> Backtracking:
    return IntervalBacktracking(
        start,
        behind=timedelta(milliseconds=5),
        late_by=late_by,
        every=timedelta(milliseconds=20),
        import_id=import_id,
    )


@given(programs, page_sizes, st.sampled_from([NEVER, MARGIN, LARGE]), readers)
@quick
def test_writer_lock_backtracking_keeps_the_invariants(
    program: Program, page_size: int, steps: timedelta, reader: type[Reader]
) -> None:
    Play(writer_lock, page_size, steps_back=steps, reader=reader).run(program)


@given(programs, page_sizes, readers)
@quick
def test_interval_backtracking_keeps_the_invariants_when_commits_are_in_time(
    program: Program, page_size: int, reader: type[Reader]
) -> None:
    Play(interval, page_size, late_by=LATE_BY, reader=reader).run(program)


@pytest.mark.parametrize("steps", [NEVER, MARGIN, LARGE], ids=["steady", "small steps", "large steps"])
@pytest.mark.parametrize("reader", [Reader, MergesTypes], ids=["one type", "every type"])
@pytest.mark.parametrize("seeds", SEEDS)
def test_long_histories_keep_the_invariants(steps: timedelta, seeds: range, reader: type[Reader]) -> None:
    handled = 0
    for seed in seeds:
        play = Play(writer_lock, 1 + seed % 5, steps_back=steps, reader=reader)
        play.run(random_program(seed, EVERYTHING + READS * 12, 400))
        handled += sum(play.world.handled.values())

    assert handled > 38 * len(seeds)  # the histories are not empty


@pytest.mark.parametrize("seeds", SEEDS)
def test_long_histories_keep_the_invariants_of_interval_backtracking(seeds: range) -> None:
    for seed in seeds:
        Play(interval, 1 + seed % 5, late_by=LATE_BY).run(random_program(seed, EVERYTHING + READS * 12, 400))


@given(
    st.lists(
        st.tuples(st.sampled_from(EVERYTHING + READS * 12 + REPLAYS * 4), numbers, numbers), max_size=120
    ),
    page_sizes,
)
@quick
def test_interval_backtracking_loses_nothing_on_a_standby_that_replays_late_and_then_nothing_more(
    program: Program, page_size: int
) -> None:
    Play(interval, page_size, late_by=LATE_BY, world=Standby).run(program)


@pytest.mark.parametrize("seeds", SEEDS)
def test_long_histories_keep_the_invariants_on_a_standby(seeds: range) -> None:
    for seed in seeds:
        play = Play(interval, 1 + seed % 5, late_by=LATE_BY, world=Standby)
        play.run(random_program(seed, EVERYTHING + READS * 12 + REPLAYS * (1 + seed % 8), 400))


@given(
    st.lists(
        st.tuples(st.sampled_from(EVERYTHING + READS * 12 + REPLAYS * 4), numbers, numbers), max_size=120
    ),
    page_sizes,
    st.sampled_from([NEVER, MARGIN, LARGE]),
)
@quick
def test_a_standby_beside_its_primary_keeps_the_invariants(
    program: Program, page_size: int, steps: timedelta
) -> None:
    Play(writer_lock, page_size, steps_back=steps, world=Standby, reader=BesidePrimary).run(program)


@pytest.mark.parametrize("seeds", SEEDS)
def test_long_histories_keep_the_invariants_on_a_standby_beside_its_primary(seeds: range) -> None:
    for seed in seeds:
        play = Play(writer_lock, 1 + seed % 5, world=Standby, reader=BesidePrimary)
        play.run(random_program(seed, EVERYTHING + READS * 12 + REPLAYS * (1 + seed % 8), 400))


class UsesThePollAtOnce(BesidePrimary):
    """Does not wait until the standby has replayed what had ended."""

    waits = False


class LooksUpThePlaceFirst(BesidePrimary):
    """Takes where the log ends from before the list of what is open."""

    place_before_holders = True


@pytest.mark.slow
@pytest.mark.parametrize("reader", [UsesThePollAtOnce, LooksUpThePlaceFirst])
def test_the_model_finds_what_a_wrong_use_of_the_primary_loses(reader: type[Reader]) -> None:
    made = (Play(writer_lock, 3, world=Standby, reader=reader, checks_horizon=False) for _ in range(2000))

    assert any(
        loses(play, random_program(seed, WRITES + REPLAYS * 2 + READS * 8, 200))
        for seed, play in enumerate(made)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "mutant", ["interval-trusts-the-clock-of-a-standby", "interval-waits-for-the-time-to-move"]
)
def test_the_model_finds_what_a_wrong_machine_loses_on_a_standby(mutant: str) -> None:
    with MUTANTS[mutant].seeded():
        made = (Play(interval, 3, late_by=LATE_BY, world=Standby, checks_horizon=False) for _ in range(1000))

        assert any(
            loses(play, random_program(seed, WRITES + REPLAYS * 2 + READS * 8, 200))
            for seed, play in enumerate(made)
        )


class PollsAfterReading(Reader):
    """Reads by a snapshot that is older than the poll."""

    reads_before_it_polls = True


def loses(play: Play, program: Program) -> bool:
    try:
        play.run(program)
    except Broken:
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutant", "codes"),
    [
        ("reader-windows-for-known-writers", WRITES),
        ("reader-windows-of-one-page", WRITES),
        ("reader-forgets-writers", WRITES),
        ("reader-horizon-is-its-position", [*WRITES, 11, 11]),
        pytest.param("reader-trusts-a-new-name", [*WRITES, 7], marks=pytest.mark.slow),
        ("reader-overlooks-imports", [*WRITES, 9]),
    ],
)
def test_the_model_finds_what_a_wrong_machine_loses(mutant: str, codes: list[int]) -> None:
    with MUTANTS[mutant].seeded():
        made = (Play(writer_lock, 1 + seed % 5, checks_horizon=False) for seed in range(1000))

        assert any(
            loses(play, random_program(seed, codes + READS * 8, 200)) for seed, play in enumerate(made)
        )


@pytest.mark.slow
def test_the_model_finds_what_a_poll_after_the_reading_loses() -> None:
    made = (Play(writer_lock, 3, reader=PollsAfterReading, checks_horizon=False) for _ in range(1000))

    assert any(loses(play, random_program(seed, WRITES + READS * 8, 200)) for seed, play in enumerate(made))


class KeepsToTheTypesItFound(MergesTypes):
    """Asks which entity types there are when it begins, and never again."""

    _found: set[str] | None = None

    def _entity_types(self) -> Generator[None, bool, set[str]]:
        if self._found is None:
            self._found = yield from super()._entity_types()
        return self._found


class LooksForTypesBeforeItPolls(MergesTypes):
    """Reads the events of the types that there were before its last poll."""

    _there: frozenset[str] = frozenset()

    def _poll(self) -> Generator[None, bool, None]:
        self._there = frozenset(self.world.entity_types())
        yield
        yield from super()._poll()

    def _entity_types(self) -> Generator[None, bool, set[str]]:
        yield from ()
        return set(self._there)


@pytest.mark.parametrize(
    "reader", [KeepsToTheTypesItFound, pytest.param(LooksForTypesBeforeItPolls, marks=pytest.mark.slow)]
)
def test_the_model_finds_what_types_that_were_looked_up_too_early_lose(reader: type[Reader]) -> None:
    made = (Play(writer_lock, 3, reader=reader, checks_horizon=False) for _ in range(1000))

    assert any(loses(play, random_program(seed, WRITES + READS * 8, 200)) for seed, play in enumerate(made))


def test_the_model_finds_what_commits_later_than_late_by_lose() -> None:
    def hasty(start: datetime, import_id: int) -> Backtracking:
        return interval(start, import_id, LATE_BY / 3)

    made = (Play(hasty, 3, late_by=LATE_BY, checks_horizon=False) for _ in range(1000))

    assert any(loses(play, random_program(seed, WRITES + READS * 8, 200)) for seed, play in enumerate(made))


@pytest.mark.slow
def test_the_model_finds_what_is_stamped_between_a_step_of_the_clock_and_the_next_poll() -> None:
    with MUTANTS["reader-ignores-the-time-gone-by"].seeded():
        made = (Play(writer_lock, 3, steps_back=LARGE, checks_horizon=False) for _ in range(2000))

        assert any(
            loses(play, random_program(seed, [*WRITES, 10] + READS * 8, 200))
            for seed, play in enumerate(made)
        )


def test_a_transaction_of_any_length_is_waited_for() -> None:
    opens = (2, 0, 0)
    others = [[(2, 2, n % 5 + 1), (4, 1, 0), (1, 31, 31), *[(14, 0, 7)] * 5] for n in range(100)]
    commits = (4, 0, 0)
    play = Play(writer_lock, 2)

    play.run([opens, *(action for other in others for action in other), commits])

    assert play.world.now > T0 + timedelta(seconds=20)
    assert play.world.handled == {"s0": 1, **dict.fromkeys(SOURCES[1:], 60)}


def test_an_idle_reader_reads_nothing_again() -> None:
    reader = WriterLockBacktracking(T0, margin=MARGIN)
    reader.polled(WritersPoll(T0 + timedelta(seconds=1)))
    reader.keys_read(None, full=False)
    reader.events_read(Position(T0, 0, "a", 1), full=False)

    reader.polled(WritersPoll(T0 + timedelta(seconds=2)))

    last_poll = T0 + timedelta(seconds=1)
    assert reader.next_step() == ReadEvents(Position.before(last_poll - MARGIN - INSTANT), END_OF_TIME)


def test_catching_up_takes_no_poll_between_pages() -> None:
    reader = WriterLockBacktracking(T0, margin=MARGIN)
    reader.polled(WritersPoll(T0 + timedelta(hours=1)))
    reader.keys_read(None, full=False)

    reader.events_read(Position(T0 + timedelta(minutes=1), 0, "a", 1), full=True)

    assert isinstance(reader.next_step(), ReadEvents)
    assert reader.horizon == T0 + timedelta(minutes=1)
