"""The kit for users' tests: table handlers without a database."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest
from pydantic import BaseModel

from journal import UnknownEventType, slice_of
from projections import (
    Changes,
    Event,
    EventEnvelope,
    InvalidHandler,
    InvalidPayload,
    Session,
    Table,
    handles,
    projection,
)
from projections.testing import START, changes_of, envelopes_of

DELAYS = Table("delays", key=("carrier",), increment=("flights", "delay"), maximum=("worst",))
PLANES = Table("planes", key=("tail",), set=("carrier",), per_source=True)


class Landed(BaseModel):
    carrier: str
    delay: int


class Retired(BaseModel):
    pass


@projection("delays", entity_type="plane", unhandled="fail")
class Delays:
    @handles(Landed)
    def landed(self, event: Landed, envelope: EventEnvelope) -> Changes:
        return [
            DELAYS.upsert(carrier=event.carrier, flights=1, delay=event.delay, worst=event.delay),
            PLANES.upsert(tail=envelope.source_id, carrier=event.carrier),
        ]

    @handles(Retired)
    def retired(self, event: Retired, envelope: EventEnvelope) -> Changes:
        return PLANES.delete(tail=envelope.source_id)


def landed(tail: str, carrier: str, delay: int) -> Event:
    return Event(tail, Landed(carrier=carrier, delay=delay), "plane")


def test_changes_are_folded_into_one_for_each_row() -> None:
    changes = changes_of(Delays, [landed("N1", "UA", 5), landed("N2", "UA", 7), landed("N1", "AA", -3)])

    assert changes == {
        "delays": {
            ("UA",): {"flights": 2, "delay": 12, "worst": 7},
            ("AA",): {"flights": 1, "delay": -3, "worst": -3},
        },
        "planes": {("N1",): {"carrier": "AA"}, ("N2",): {"carrier": "UA"}},
    }


def test_a_row_that_is_deleted_is_none() -> None:
    changes = changes_of(Delays, [landed("N1", "UA", 5), Event("N1", Retired(), "plane")])

    assert changes["planes"] == {("N1",): None}


def test_no_events_make_no_changes() -> None:
    assert changes_of(Delays, []) == {}


def test_events_of_another_entity_type_are_left_out() -> None:
    assert changes_of(Delays, [Event("JFK", Landed(carrier="UA", delay=1), "airport")]) == {}


def test_an_object_is_used_as_it_is() -> None:
    assert changes_of(Delays(), [landed("N1", "UA", 5)]) == changes_of(Delays, [landed("N1", "UA", 5)])


def test_envelopes_are_taken_as_they_are() -> None:
    envelopes = envelopes_of([landed("N1", "UA", 5)])

    assert changes_of(Delays, envelopes) == changes_of(Delays, [landed("N1", "UA", 5)])


def test_a_payload_that_does_not_fit_is_the_error_of_a_running_projection() -> None:
    with pytest.raises(InvalidPayload, match="delay"):
        changes_of(Delays, [Event("N1", {"carrier": "UA", "delay": "late"}, "plane", "Landed")])


def test_an_event_without_a_handler_is_an_error_where_the_projection_says_so() -> None:
    with pytest.raises(UnknownEventType, match="'Exploded'"):
        changes_of(Delays, [Event("N1", {}, "plane", "Exploded")])


def test_handlers_that_need_a_session_are_refused() -> None:
    @projection("p", entity_type="plane")
    class Each:
        @handles(Landed)
        async def landed(self, session: Session, event: Landed, envelope: EventEnvelope) -> None: ...

    with pytest.raises(InvalidHandler, match="no table handlers"):
        changes_of(Each, [])


def test_envelopes_are_numbered_by_source_and_a_second_apart() -> None:
    event_id = uuid4()
    first = Event(
        "N1", Landed(carrier="UA", delay=1), "plane", tags=["x"], metadata={"by": "me"}, event_id=event_id
    )

    envelopes = envelopes_of([first, landed("N2", "AA", 1), landed("N1", "UA", 2)])

    assert [(e.source_id, e.seq_nr) for e in envelopes] == [("N1", 1), ("N2", 1), ("N1", 2)]
    assert [e.db_timestamp - START for e in envelopes] == [timedelta(seconds=n) for n in range(3)]
    assert envelopes[0].slice == slice_of("N1")
    assert (envelopes[0].tags, envelopes[0].metadata, envelopes[0].event_id) == (
        ["x"],
        {"by": "me"},
        event_id,
    )
    assert envelopes[0].payload == {"carrier": "UA", "delay": 1}
