"""The history checker: each seeded corruption is found for what it is, and nothing is found in clean histories."""

from __future__ import annotations

import itertools
import random
import tracemalloc
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.auditing import KINDS, Audit, Finding, History, InvalidHistory, Kind, history

Key: TypeAlias = tuple[str, int]
Told: TypeAlias = tuple[str, int, str | None]

_NUMBERS = st.sets(
    st.integers(1, 60), min_size=1, max_size=12
)  # with gaps: journals of other systems have them
_HISTORIES = st.dictionaries(st.text(max_size=3), _NUMBERS, min_size=1, max_size=6)


def audit(
    committed: Iterable[Told], handled: Iterable[Told], *, recent: Iterable[Key] = (), examples: int = 10
) -> Audit:
    newest = set(recent)
    with History(examples=examples) as told:
        told.expect("p")
        for source_id, seq_nr, event_id in committed:
            told.committed(source_id, seq_nr, event_id, recent=(source_id, seq_nr) in newest)
        for source_id, seq_nr, event_id in handled:
            told.handled(source_id, seq_nr, event_id, projection="p")
        return told.audit()["p"]


def committed_of(sources: dict[str, set[int]], *, ids: bool = False) -> list[Told]:
    return [(s, n, f"{s}/{n}" if ids else None) for s, numbers in sources.items() for n in sorted(numbers)]


def interleaved(events: Sequence[Told], chance: random.Random) -> list[Told]:
    """In any order that keeps that of each source."""
    order = [source_id for source_id, *_ in events]
    chance.shuffle(order)
    by_source = {source_id: [event for event in events if event[0] == source_id] for source_id in order}
    return [by_source[source_id].pop(0) for source_id in order]


@given(sources=_HISTORIES, chance=st.randoms(use_true_random=False), ids=st.booleans())
def test_nothing_is_found_in_a_clean_history(
    sources: dict[str, set[int]], chance: random.Random, ids: bool
) -> None:
    events = committed_of(sources, ids=ids)

    found = audit(chance.sample(events, len(events)), interleaved(events, chance))

    assert found == Audit(committed=len(events), handled=len(events))
    assert found.clean()


def corrupt(kind: Kind, handled: list[Told], chance: random.Random) -> tuple[list[Told], Key] | None:
    """Damage a history once; returns it with the event that must be found, None where it has no room for that."""
    at = chance.randrange(len(handled))
    source_id, seq_nr, event_id = event = handled[at]
    rest = handled[:at] + handled[at + 1 :]
    match kind:
        case "lost":
            return rest, (source_id, seq_nr)
        case "doubled":
            again = chance.randrange(at, len(handled))
            return [*handled[: again + 1], event, *handled[again + 1 :]], (source_id, seq_nr)
        case "invented":
            other = seq_nr + 100, event_id
            return [*handled[:at], (source_id, *other), *handled[at:]], (source_id, seq_nr + 100)
        case "out_of_order":
            later = [place for place in range(at, len(rest)) if rest[place][0] == source_id]
            if not later:
                return None
            place = chance.choice(later) + 1
            return [*rest[:place], event, *rest[place:]], (source_id, seq_nr)


@pytest.mark.parametrize("kind", KINDS)
@given(sources=_HISTORIES, chance=st.randoms(use_true_random=False), ids=st.booleans())
def test_one_corruption_is_found_and_nothing_else(
    kind: Kind, sources: dict[str, set[int]], chance: random.Random, ids: bool
) -> None:
    events = committed_of(sources, ids=ids)
    corrupted = corrupt(kind, interleaved(events, chance), chance)
    if corrupted is None:
        return
    handled, (source_id, seq_nr) = corrupted

    found = audit(events, handled)

    assert found.counts == {kind: 1}
    assert found.examples == [Finding(kind, source_id, seq_nr)]
    assert not found.clean()
    assert found.clean(at_least_once=True) is (kind == "doubled")


@given(sources=_HISTORIES, chance=st.randoms(use_true_random=False))
def test_a_number_that_another_event_had_before_the_database_went_back_is_invented_and_its_event_lost(
    sources: dict[str, set[int]], chance: random.Random
) -> None:
    events = committed_of(sources, ids=True)
    handled = interleaved(events, chance)
    at = chance.randrange(len(handled))
    source_id, seq_nr, _ = handled[at]
    handled[at] = source_id, seq_nr, "of the lost timeline"

    found = audit(events, handled)

    assert set(found.examples) == {Finding("invented", source_id, seq_nr), Finding("lost", source_id, seq_nr)}


@given(sources=_HISTORIES, chance=st.randoms(use_true_random=False))
def test_recent_events_wait_unless_a_later_one_of_their_source_was_handled(
    sources: dict[str, set[int]], chance: random.Random
) -> None:
    events = committed_of(sources)
    kept = {source_id: chance.randint(0, len(numbers)) for source_id, numbers in sources.items()}
    handled = [
        (s, n, None)
        for s, numbers in sources.items()
        for n in sorted(numbers)[: kept[s]]
        if n != min(numbers)
    ]
    recent = [(s, n) for s, n, _ in events]

    found = audit(events, handled, recent=recent)

    skipped = sum(kept[source_id] > 1 for source_id in sources)  # the first, of which a later one was handled
    assert found.counts == ({"lost": skipped} if skipped else {})
    assert found.waiting == len(events) - len(handled) - skipped


def test_each_projection_is_compared_by_itself() -> None:
    with History() as told:
        told.expect("none")
        told.committed("a", 1)
        told.handled("a", 1, projection="one")
        found = told.audit()

    assert [*found] == ["none", "one"]
    assert found["none"].counts == {"lost": 1}
    assert found["one"].clean()


def test_two_committed_events_of_one_number_are_refused() -> None:
    with pytest.raises(InvalidHistory, match="source 'a' has two committed events of number 7"):
        audit([("a", 7, None), ("a", 7, None)], [])


def test_what_is_more_than_is_compared_at_once_is_split_and_compared_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(history, "_COMPARED", 20)
    monkeypatch.setattr(history, "_BUFFERED", 3)
    events = committed_of({f"s{n}": set(range(1, 11)) for n in range(300)} | {"long": set(range(1, 101))})
    handled = interleaved(events, random.Random(1))
    lost = handled.pop(500)

    found = audit(events, [*handled, handled[0]])

    assert found.counts == {"lost": 1, "doubled": 1}
    assert set(found.examples) == {Finding("lost", *lost[:2]), Finding("doubled", *handled[0][:2])}


@pytest.mark.slow
@pytest.mark.parametrize("sources", [4_000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_very_many_events_need_little_memory_and_one_corruption_of_each_kind_is_found(sources: int) -> None:
    each = 50

    def events() -> Iterable[Key]:
        return ((f"source {s}", n) for n, s in itertools.product(range(1, each + 1), range(sources)))

    with History() as told:
        for source_id, seq_nr in events():
            told.committed(source_id, seq_nr)
        for key in events():
            if key != ("source 7", 20):
                told.handled(*key)
            if key == ("source 9", 30):
                told.handled("source 9", 12)
            if key == ("source 7", 44):
                told.handled("source 3", 99)
            if key == ("source 11", 31):
                told.handled("source 11", 33)
        tracemalloc.start()
        found = told.audit()[""]
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()

    assert found.committed == sources * each
    assert set(found.examples) == {
        Finding("lost", "source 7", 20), Finding("doubled", "source 9", 12), Finding("invented", "source 3", 99),
        Finding("out_of_order", "source 11", 32), Finding("doubled", "source 11", 33),
    }  # fmt: skip
    assert most < 40 * sources * each  # a 64th of them, and what is waiting in the buffers
