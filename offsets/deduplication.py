"""
What a range knows of its sources: pure, and bounded by the cache it is given.

The number of a source's last handled event decides about every event that is read, however often and in whatever
order: the next one is accepted, those up to it are duplicates, and a later one leaves a gap.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from enum import Enum


class Verdict(Enum):
    """What is to become of an event that was read."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    GAP = "gap"
    """Events of its source before it have not been handled."""
    UNKNOWN_SOURCE = "unknown source"
    """No offset of its source: handled and evicted, or never handled? The event before it tells."""
    PARKED = "parked"
    """Its source waits for a decision."""


# Names of this module are looked up in a quarter of the time of members of the class, and each event needs one.
_ACCEPTED, _DUPLICATE, _GAP, _PARKED, _UNKNOWN_SOURCE = (
    Verdict.ACCEPTED,
    Verdict.DUPLICATE,
    Verdict.GAP,
    Verdict.PARKED,
    Verdict.UNKNOWN_SOURCE,
)
_ABSENT = -1


class OffsetState:
    """
    The last handled ``seq_nr`` of sources; moves only when a transaction has committed.

    Args:
        cache_size: Sources kept in memory, at least those of one batch; the database knows the others.
        evicted_before: Events before this time count as handled where the source has no offset.
        parked: Sources that wait, with the number that they wait at.
    """

    def __init__(
        self, cache_size: int, evicted_before: datetime, parked: Mapping[str, int] | None = None
    ) -> None:
        self.size = cache_size
        """The most sources that it keeps."""
        self._known: OrderedDict[str, int] = OrderedDict()  # the one that was used last is the last
        self.evicted_before = evicted_before
        self.complete = False
        """Whether all offsets are in memory: a source that is not there has none."""
        self.parked = dict(parked or {})

    def unknown(self, source_ids: Iterable[str]) -> list[str]:
        """Those sources that must be looked up in the database before a verdict."""
        if self.complete:
            return []
        known, use = self._known, self._known.move_to_end
        unknown: list[str] = []
        for source_id in source_ids:
            if source_id in known:
                use(source_id)  # what a batch needs must not make room for what it looks up
            else:
                unknown.append(source_id)
        return unknown

    def loaded(self, source_ids: Iterable[str], stored: Mapping[str, int]) -> None:
        """Take in what the database holds of sources that were looked up."""
        self._keep({source_id: stored.get(source_id, _ABSENT) for source_id in source_ids})

    def _keep(self, seq_nrs: Mapping[str, int]) -> None:
        known = self._known
        for source_id, seq_nr in seq_nrs.items():  # update() would make a list of pairs first
            known[source_id] = seq_nr
        while len(known) > self.size:
            known.popitem(last=False)

    def filled(self, stored: Mapping[str, int]) -> None:
        """Keep all offsets of the database in memory, if they fit."""
        if len(stored) < self.size:
            self._known.clear()
            self._known.update(stored)
            self.complete = True

    def committed(self, seq_nrs: Mapping[str, int]) -> None:
        """Take in the last events of a batch; only after its transaction has committed."""
        self._keep(seq_nrs)
        if len(self._known) == self.size:
            self.complete = False  # a new source may have displaced another one

    def evicted(self, source_ids: Collection[str], before: datetime) -> None:
        """Events before a time count as handled, and these sources have no offset any more."""
        self.evicted_before = before
        if self.complete:
            for source_id in _both(source_ids, self._known):
                del self._known[source_id]
        else:
            self._keep(dict.fromkeys(source_ids, _ABSENT))  # the next part of a split batch asks for them

    def previous(self, source_ids: Collection[str]) -> dict[str, int]:
        """The last handled numbers of those sources that have one; all have been looked up."""
        known = self._known
        if self.complete:
            source_ids = _both(source_ids, known)
        return {source_id: seq_nr for source_id in source_ids if (seq_nr := known[source_id]) != _ABSENT}

    def forget(self, source_ids: Iterable[str]) -> None:
        """Look these up again: the outcome of their last batch is not known."""
        self.complete = False
        for source_id in source_ids:
            self._known.pop(source_id, None)

    def forget_all(self) -> None:
        """Look every source up again: what was stored of them was not said here."""
        self._known.clear()
        self.complete = False

    def batch(self, source_ids: Collection[str]) -> BatchVerdicts:
        """
        Begin a batch over sources that have all been looked up.

        Raises:
            KeyError: One has not, or has been forgotten.
        """
        known = self._known
        if self.complete:
            numbers = dict.fromkeys(source_ids, _ABSENT)
            numbers.update((source_id, known[source_id]) for source_id in _both(numbers, known))
            return BatchVerdicts(self, numbers)
        return BatchVerdicts(self, {source_id: known[source_id] for source_id in source_ids})


def _both(some: Collection[str], others: Collection[str]) -> list[str]:
    """What is in both, by looking each one of the smaller up in the larger."""
    few, many = sorted((some, others), key=len)
    return [source_id for source_id in few if source_id in many]


class BatchVerdicts:
    """
    Verdicts for the events of one batch: an accepted event counts as handled for those that follow.

    Args:
        state: The state that the batch starts from; it does not change.
        known: The last handled numbers of the batch's sources.
    """

    def __init__(self, state: OffsetState, known: dict[str, int]) -> None:
        self._state = state
        self._known = known

    def without_offset(self) -> set[str]:
        """Sources that have none, or none any more."""
        return {source_id for source_id, seq_nr in self._known.items() if seq_nr == _ABSENT}

    def known(self, source_id: str) -> int:
        """The last handled number, 0 where there is none."""
        return max(self._known[source_id], 0)

    def validate(self, source_id: str, seq_nr: int, db_timestamp: datetime) -> Verdict:
        """The verdict on an event; it is not accepted by that."""
        known = self._known[source_id]
        if known == _ABSENT and db_timestamp < self._state.evicted_before:
            return _DUPLICATE  # handled, and its offset is gone; also a first event
        if seq_nr == known + 1 or (known == _ABSENT and seq_nr == 1):
            return _PARKED if self._state.parked and source_id in self._state.parked else _ACCEPTED
        if seq_nr <= known:
            return _DUPLICATE
        if source_id in self._state.parked:
            return _PARKED
        return _UNKNOWN_SOURCE if known == _ABSENT else _GAP

    def validate_unknown(self, predecessor: datetime | None) -> Verdict:
        """
        The verdict on an event whose source has no offset, by the time of the event before it.

        Everything before the eviction bound was handled, so the offset of such a source may be gone. A later
        predecessor would have an offset if it had been handled. One that was deleted cannot be waited for.
        """
        if predecessor is None or predecessor < self._state.evicted_before:
            return Verdict.ACCEPTED
        return Verdict.GAP

    def accept(self, source_id: str, seq_nr: int) -> None:
        """Count an event as handled for the rest of the batch."""
        self._known[source_id] = seq_nr
