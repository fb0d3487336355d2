"""Events that failed for what may be the fault of all, such as a missing table or a time-out: neighbours decide."""

from __future__ import annotations

from collections.abc import Sequence

from journal import EventEnvelope, event_type_of
from journal.database import Fault
from projections.defining import Kind, Projection
from projections.errors import HandlerFailed, of_all


class Suspects:
    """
    Holds such events of a page back until the rest of it is handled.

    Where others pass, they are at fault. Where too many sources fail and none passes, it is no event's fault.

    Args:
        projection: The projection that handles the events.
        limit: How many sources may fail before any has passed.
        more: Whether events wait behind this page that are not tried with it.
    """

    def __init__(self, projection: Projection, limit: int, *, more: bool) -> None:
        self._projection = projection
        self._limit = limit
        self._more = more
        self._failed: set[str] = set()
        self._waiting: dict[str, list[EventEnvelope]] = {}
        self._passed: list[Sequence[EventEnvelope]] = []
        self._decided = False

    @property
    def any(self) -> bool:
        """Whether any is held back."""
        return bool(self._waiting)

    def passed(self, envelopes: Sequence[EventEnvelope]) -> None:
        """Events were handled."""
        self._passed.append(envelopes)

    def left(self, envelopes: list[EventEnvelope]) -> list[EventEnvelope]:
        """Of events, those before which none of their source is held back; the others are held back with it."""
        if not self._waiting:
            return envelopes
        for envelope in envelopes:
            if (waiting := self._waiting.get(envelope.source_id)) is not None:
                waiting.append(envelope)
        return [envelope for envelope in envelopes if envelope.source_id not in self._waiting]

    def hold(self, envelope: EventEnvelope, failure: HandlerFailed) -> bool:
        """
        Hold an event back that has failed alone; false where all others were tried, and recovery is to decide.

        Raises:
            ProjectionsError: It is not at fault: so many have failed, and none has passed.
        """
        if self._decided or failure.fault is Fault.EVENT:
            return False
        self._failed.add(envelope.source_id)
        self._waiting[envelope.source_id] = [envelope]
        if len(self._waiting) > self._limit and not self._passed_types():
            raise of_all(failure)
        return True

    def check(self, failure: HandlerFailed) -> None:
        """
        Look whether a failure that passes with the load of the server may be an event's own.

        Raises:
            ProjectionsError: Nothing else has passed. Few sources that fill the page are no proof that all fail: where
                others wait behind them, they are set aside, to ask those.
        """
        asks_others = self._more and len(self._failed) <= self._limit
        if failure.fault is Fault.BATCH and not asks_others and not self._passed_types():
            raise of_all(failure)

    def decide(self) -> list[list[EventEnvelope]]:
        """What was held back, in parts: each event that has failed, and what came after it of its source."""
        waiting, self._waiting, self._decided = self._waiting, {}, True
        return [part for one in waiting.values() for part in (one[:1], one[1:]) if part]

    def is_alone(self, envelope: EventEnvelope) -> bool:
        """Whether no other event of its type has passed."""
        return envelope.event_type not in self._passed_types()

    def _passed_types(self) -> set[str]:
        """Without those that are passed over, which prove nothing."""
        found = {envelope.event_type for part in self._passed for envelope in part}
        projection = self._projection
        if projection.kind in {Kind.HEADS, Kind.ENVELOPES}:
            return found
        models = [model for one in projection.read_models for model in one.models.values()]
        return found & {
            *projection.handlers, *projection.reactions, *(event_type_of(model).name for model in models)
        }  # fmt: skip
