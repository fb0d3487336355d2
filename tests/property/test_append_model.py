"""Whatever is appended, sent, repeated or rolled back: numbers have no gap, and a source's times increase."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from journal import AppendConflict, Event, append_sync, slice_of
from tests.fixtures.examples import examples
from tests.fixtures.journal import event, uuid7

SOURCES = ["a", "b", "ä😀", "N14228"]
AHEAD = datetime.now(UTC) + timedelta(days=2)


@dataclass
class Model:
    """What the journal must hold: for each source its events by their payloads."""

    events: dict[str, list[Any]] = field(default_factory=dict)
    ids: dict[UUID, tuple[str, int]] = field(default_factory=dict)

    def copy(self) -> Model:
        return Model({source: list(events) for source, events in self.events.items()}, dict(self.ids))

    def append(self, batch: list[Event]) -> list[tuple[str, int]]:
        results = []
        for one in batch:
            if one.event_id is None or one.event_id not in self.ids:
                events = self.events.setdefault(one.source_id, [])
                events.append(one.payload)
                place = (one.source_id, len(events))
                if one.event_id is not None:
                    self.ids[one.event_id] = place
            results.append(self.ids[one.event_id] if one.event_id else place)
        return results


@dataclass(frozen=True)
class Append:
    """
    One call.

    ``known`` are numbers of event ids: the same number is the same event. So are those of ``sent``, whose messages
    have any of several publishers.
    """

    sources: tuple[str, ...]
    known: tuple[int, ...]
    sent: tuple[tuple[int, str], ...]
    expected: int | None
    ends: str

    def events(self, now: datetime) -> list[Event]:
        new = [event(source) for source in self.sources]
        known = [event(SOURCES[n % 4], {"id": n}, event_id=uuid7(now, n)) for n in self.known]
        return new + known + [_message(name, {"sent": n}, uuid7(now, 100 + n)) for n, name in self.sent]


def _message(name: str, payload: Any, event_id: UUID) -> Event:
    return event(f"publisher/{name}", payload, entity_type="published", event_id=event_id)


_appends = st.builds(
    Append,
    sources=st.lists(st.sampled_from(SOURCES), max_size=6).map(tuple),
    known=st.lists(st.integers(0, 7), max_size=3, unique=True).map(tuple),
    sent=st.lists(
        st.tuples(st.integers(0, 4), st.sampled_from("pq")), max_size=3, unique_by=lambda one: one[0]
    ).map(tuple),
    expected=st.none() | st.integers(0, 3),
    ends=st.sampled_from(["commit", "commit", "rollback", "savepoint", "clock steps back"]),
)


@pytest.fixture
def connection(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(dsn) as opened:
        yield opened


@given(calls=st.lists(_appends, min_size=1, max_size=12))
@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_journal_holds_what_a_dictionary_would(
    connection: psycopg.Connection[Any], calls: list[Append]
) -> None:
    connection.execute("TRUNCATE projections.events, projections.sources")
    connection.commit()
    model, now = Model(), datetime.now(UTC)

    for call in calls:
        model = _play(connection, model, call, now)

    _compare(connection, model)


def _play(connection: psycopg.Connection[Any], model: Model, call: Append, now: datetime) -> Model:
    """One call and the end of its transaction; the model after it."""
    after, batch = model.copy(), call.events(now)
    expected = call.expected if len({e.source_id for e in batch}) == 1 else None
    if call.ends == "clock steps back":
        connection.execute(
            "UPDATE projections.sources SET db_timestamp = greatest(db_timestamp, %s) WHERE source_id = 'a'",
            [AHEAD],
        )
    if call.ends == "savepoint":
        connection.execute("SAVEPOINT one")
    results = after.append(batch)
    new = sum(map(len, after.events.values())) - sum(map(len, model.events.values()))
    stands = len(model.events.get(batch[0].source_id, [])) if batch else 0
    if new and expected is not None and expected != stands:
        with pytest.raises(AppendConflict, match=f"is at seq_nr {stands}, expected {expected}"):
            append_sync(connection, batch, expected_seq_nr=expected)
        connection.rollback()
        return model
    assert [
        (a.source_id, a.seq_nr) for a in append_sync(connection, batch, expected_seq_nr=expected)
    ] == results
    if call.ends == "savepoint":
        connection.execute("ROLLBACK TO SAVEPOINT one")
    if call.ends == "rollback":
        connection.rollback()
    connection.commit()
    return model if call.ends in {"savepoint", "rollback"} else after


def _compare(connection: psycopg.Connection[Any], model: Model) -> None:
    stands = dict(
        connection.execute("SELECT source_id, seq_nr FROM projections.sources WHERE seq_nr > 0").fetchall()
    )
    assert stands == {source: len(events) for source, events in model.events.items() if events}
    for source, events in model.events.items():
        rows = connection.execute(
            "SELECT seq_nr, payload, db_timestamp, slice FROM projections.read_source_v1(%s, 1, 1000, FALSE, 1000)",
            [source],
        ).fetchall()
        assert [row[0] for row in rows] == list(range(1, len(events) + 1))
        assert [row[1] for row in rows] == [str(e).replace("'", '"').replace(" ", "") for e in events]
        assert all(one[2] < two[2] for one, two in pairwise(rows))
        assert {row[3] for row in rows} <= {slice_of(source)}
