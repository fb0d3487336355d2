"""Loading a source: its events folded into a state, and the number of the last one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import BaseModel

from journal.database import Session
from journal.envelopes import EventEnvelope, decoder
from journal.errors import InvalidValue
from journal.event_types import event_type_of
from journal.reader import latest_seq_nr, read_source

S = TypeVar("S")


class Loaded(NamedTuple, Generic[S]):
    """What the events of a source come to."""

    state: S
    seq_nr: int
    """The number of the last event in it, ready for ``append(expected_seq_nr=…)``; 0 of a source without events."""


async def load(
    session: Session,
    source_id: str,
    fold: Callable[[S, Any], S],
    initial: S,
    *models: type[BaseModel],
    after: int = 0,
) -> Loaded[S]:
    """
    Fold the events of a source into a state.

    Args:
        session: A session on the journal's database.
        source_id: The source; of an unknown one, the state is the initial one and the number 0.
        fold: Makes the next state of a state and an event, which is a model in its newest version.
        initial: The state before the first event.
        models: Fold events of these models, and pass over all others. None: fold all events, each as the model that
            :func:`event_type` declares for it.
        after: Fold the events after this number; ``initial`` is the state there, such as a snapshot.

    Raises:
        InvalidPayload: A payload does not fit its model; or no models are given, and none is declared for an event.
        InvalidValue: The journal no longer has some of the events after that number.
    """
    latest = await latest_seq_nr(session, source_id)  # before its events, so that no later one is counted
    decoders = {event_type_of(model).name: decoder(model) for model in models}
    state, seq_nr = initial, after
    async for envelope in read_source(session, source_id, first=after + 1, last=latest):
        _check_next(envelope.seq_nr, seq_nr, source_id)
        seq_nr = envelope.seq_nr
        if models and envelope.event_type not in decoders:
            continue
        decode = decoders.get(envelope.event_type, _declared)
        state = fold(state, decode(envelope))
    _check_next(max(latest, after) + 1, seq_nr, source_id)
    return Loaded(state, seq_nr)


def _declared(envelope: EventEnvelope) -> BaseModel:
    return envelope.event


def _check_next(found: int, last: int, source_id: str) -> None:
    if found != last + 1:
        raise InvalidValue(
            f"the journal no longer has the events {last + 1} to {found - 1} of source {source_id!r}: load it from a "
            "state that was stored after them, with after="
        )
