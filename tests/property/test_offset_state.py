"""The verdicts of a bounded state are those of a dictionary that never forgets."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsets import OffsetState, Verdict

T0 = datetime(2030, 1, 1, tzinfo=UTC)
SOURCES = ["a", "b", "c", "d", "e"]
CACHE_SIZE = 3


def at(seq_nr: int) -> datetime:
    """When the n-th event of every source was written."""
    return T0 + timedelta(seconds=seq_nr)


@dataclass
class Store:
    """The offsets in the database, and a dictionary of what was handled."""

    handled: dict[str, int] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)
    evicted_before: datetime = T0

    def evict(self, before: datetime) -> None:
        self.evicted_before = max(self.evicted_before, before)
        self.offsets = {s: n for s, n in self.offsets.items() if at(n) >= self.evicted_before}


def naive(handled: int, seq_nr: int) -> Verdict:
    if seq_nr <= handled:
        return Verdict.DUPLICATE
    return Verdict.ACCEPTED if seq_nr == handled + 1 else Verdict.GAP


events = st.tuples(st.sampled_from(SOURCES[:3]) | st.sampled_from(SOURCES), st.integers(1, 8))
batches = st.tuples(st.lists(events, max_size=8), st.booleans())
evictions = st.none() | st.integers(0, 8)
histories = st.lists(st.tuples(batches, evictions), max_size=12)


def run_batch(state: OffsetState, store: Store, page: list[tuple[str, int]], *, commits: bool) -> None:
    sources = sorted({source_id for source_id, _ in page})[:CACHE_SIZE]
    unknown = state.unknown(sources)
    state.loaded(unknown, {s: store.offsets[s] for s in unknown if s in store.offsets})
    state.evicted_before = store.evicted_before
    batch, expected = state.batch(sources), dict(store.handled)
    for source_id, seq_nr in page:
        if source_id not in sources:
            continue
        verdict = batch.validate(source_id, seq_nr, at(seq_nr))
        if verdict is Verdict.UNKNOWN_SOURCE:
            verdict = batch.validate_unknown(at(seq_nr - 1))
        assert verdict is naive(expected.get(source_id, 0), seq_nr), (source_id, seq_nr)
        if verdict is Verdict.ACCEPTED:
            batch.accept(source_id, seq_nr)
            expected[source_id] = seq_nr
    if commits:
        changed = {s: n for s, n in expected.items() if n != store.handled.get(s)}
        store.handled = expected
        store.offsets |= changed
        state.committed(changed)


@given(histories)
def test_verdicts_are_those_of_a_dictionary(
    history: list[tuple[tuple[list[tuple[str, int]], bool], int | None]],
) -> None:
    store = Store()
    state = OffsetState(CACHE_SIZE, T0)
    for (page, commits), evict_to in history:
        run_batch(state, store, page, commits=commits)
        if evict_to is not None:
            # As the horizon has it: every event of a source before the bound is handled.
            settled = [at(store.handled.get(s, 0) + 1) for s in SOURCES]
            store.evict(min([*settled, at(evict_to)]))


def looked_up(
    stored: dict[str, int], *, evicted_before: datetime = T0, parked: dict[str, int] | None = None
) -> OffsetState:
    state = OffsetState(CACHE_SIZE, evicted_before, parked)
    state.loaded(["a"], stored)
    return state


@pytest.mark.parametrize(
    ("seq_nr", "verdict"), [(3, Verdict.DUPLICATE), (4, Verdict.ACCEPTED), (5, Verdict.GAP)]
)
def test_the_next_number_is_accepted(seq_nr: int, verdict: Verdict) -> None:
    batch = looked_up({"a": 3}).batch(["a"])

    assert batch.validate("a", seq_nr, at(seq_nr)) is verdict


def test_an_accepted_event_counts_for_the_rest_of_its_batch_alone() -> None:
    state = looked_up({"a": 3})
    batch = state.batch(["a"])
    batch.accept("a", 4)

    assert batch.validate("a", 5, at(5)) is Verdict.ACCEPTED
    assert state.batch(["a"]).validate("a", 5, at(5)) is Verdict.GAP


@pytest.mark.parametrize("seq_nr", [1, 2])
def test_an_event_before_the_eviction_bound_was_handled_where_its_source_has_no_offset(seq_nr: int) -> None:
    batch = looked_up({}, evicted_before=at(3)).batch(["a"])

    assert batch.validate("a", seq_nr, at(seq_nr)) is Verdict.DUPLICATE


def test_an_unknown_source_goes_on_after_a_predecessor_that_was_evicted_or_deleted() -> None:
    batch = looked_up({}, evicted_before=at(3)).batch(["a"])

    assert batch.validate("a", 3, at(3)) is Verdict.UNKNOWN_SOURCE
    assert batch.validate_unknown(at(2)) is Verdict.ACCEPTED
    assert batch.validate_unknown(None) is Verdict.ACCEPTED


def test_an_unknown_source_with_a_recent_predecessor_has_a_gap() -> None:
    batch = looked_up({}, evicted_before=at(3)).batch(["a"])

    assert batch.validate_unknown(at(3)) is Verdict.GAP


def test_a_parked_source_waits_but_its_handled_events_stay_duplicates() -> None:
    batch = looked_up({"a": 3}, parked={"a": 4}).batch(["a"])

    verdicts = [batch.validate("a", n, at(n)) for n in (3, 4, 6)]

    assert verdicts == [Verdict.DUPLICATE, Verdict.PARKED, Verdict.PARKED]


def test_a_forgotten_source_is_looked_up_again() -> None:
    state = looked_up({"a": 3})
    state.forget(["a", "b"])

    assert state.unknown(["a"]) == ["a"]


def test_looking_up_sources_of_a_batch_does_not_push_out_others_of_it() -> None:
    state = OffsetState(3, T0)
    state.loaded(["a", "b", "c"], {"a": 1, "b": 2, "c": 3})

    unknown = state.unknown(["a", "d", "e"])
    state.loaded(unknown, {})

    assert state.batch(["a", "d", "e"]).known("a") == 1


def test_memory_is_bounded_by_the_cache() -> None:
    state = OffsetState(10, T0)
    for n in range(1000):
        state.loaded([f"s{n}"], {})
        state.committed({f"s{n}": 1})

    known = 1000 - len(state.unknown(f"s{n}" for n in range(1000)))

    assert known == 10
