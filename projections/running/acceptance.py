"""The events of a page that are to be handled: no duplicates, none after a gap that is not filled first."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from journal import BEGINNING, EventEnvelope, Key, OwnedSession, SliceReader
from offsets import BatchVerdicts, Verdict
from projections.errors import describe
from projections.running.read_journal import Reading
from projections.running.transactions import Transactions

log = logging.getLogger("projections")

# Names of this module are looked up in a quarter of the time of members of the class, and each event needs several.
_ACCEPTED, _DUPLICATE, _GAP, _UNKNOWN_SOURCE = (
    Verdict.ACCEPTED,
    Verdict.DUPLICATE,
    Verdict.GAP,
    Verdict.UNKNOWN_SOURCE,
)

_BEHIND = timedelta(minutes=1)
"""A range whose horizon is older than this begins again when archived events come back (_pass_restored_v1)."""


class Acceptance:
    """
    Decides about events that were read.

    Args:
        name: The projection, for messages.
        reader: Loads what a gap leaves out.
        reading: Lends what to read the journal with.
        transactions: Those of the range: know its offsets.
        exact: Whether an event is visible only when those before it are (a primary): what a gap then leaves out and
            cannot be loaded was deleted. Otherwise it may still come.
        inline: Whether others store offsets, too: each page is then judged by what is stored, not by what is
            remembered. What they store meanwhile is of events that no worker sees yet.
        evicts: Whether offsets of old events may be left out, if the database agrees.
        passed_over: Called with an event whose number is below the first one: no projection handles it.
    """

    def __init__(
        self,
        name: str,
        reader: SliceReader,
        reading: Reading,
        transactions: Transactions,
        *,
        exact: bool = True,
        inline: bool = False,
        evicts: bool = False,
        passed_over: Callable[[EventEnvelope], None] = lambda _: None,
    ) -> None:
        self._name = name
        self._reader = reader
        self._reading = reading
        self._transactions = transactions
        self._state = transactions.state
        self._exact = exact
        self._inline = inline
        self._passed_over = passed_over
        self._evicts = evicts and exact and not inline

    def old(self, settled: datetime | None, polled_at: datetime) -> datetime | None:
        """
        Before when a page of events after the position needs no offsets; None: each does.

        Args:
            settled: No event before this time can appear any more; None: not known.
            polled_at: The database's time at the last poll.
        """
        if not self._evicts or settled is None:
            return None
        kept = self._transactions.retention
        return min(settled, polled_at - kept - min(kept, _BEHIND))

    async def is_settled(
        self, session: OwnedSession, page: Sequence[EventEnvelope], old: datetime | None
    ) -> bool:
        """
        Whether offsets of a page's sources may be left out; then no event of it waits for one before it.

        Args:
            session: Outside a transaction.
            page: The events after the position, read when all before them were handled.
            old: The time that :meth:`old` returned.
        """
        if old is not None and page and page[-1].db_timestamp < old:
            settled = await self._transactions.may_evict(session)
        else:
            settled = False
        if not settled:
            self.caught_up()
        return settled

    def caught_up(self) -> None:
        """Look offsets up again: a restore of events stores some, and restarts a range only while it is behind."""
        self._state.complete = False

    async def accept(
        self, session: OwnedSession, page: Sequence[EventEnvelope], *, settled: bool = False
    ) -> list[EventEnvelope]:
        """The events of a page that are to be handled, in order, each after what was missing before it."""
        batch = await self._batch(session, {envelope.source_id for envelope in page})
        gaps = set() if settled else await self._unknown_gaps(session, batch, page)
        accepted: list[EventEnvelope] = []
        validate, accept = batch.validate, batch.accept
        for envelope in page:
            source_id, seq_nr = envelope.source_id, envelope.seq_nr
            verdict = validate(source_id, seq_nr, envelope.db_timestamp)
            if verdict is _UNKNOWN_SOURCE:
                verdict = _GAP if (source_id, seq_nr) in gaps else _ACCEPTED
            if verdict is _GAP:
                missing = await self._fill(session, envelope, batch.known(source_id))
                if missing is None:
                    continue  # it comes again when the missing ones can be seen
                accepted += missing
                verdict = _ACCEPTED
            if verdict is _ACCEPTED:
                accept(source_id, seq_nr)
                accepted.append(envelope)
            elif seq_nr < 0:
                self._passed_over(envelope)
        return accepted

    async def unhandled(self, session: OwnedSession, keys: Sequence[Key]) -> list[Key]:
        """Of keys, those whose events have not been handled and do not wait."""
        if not keys:
            return []
        batch = await self._batch(session, {key.source_id for key in keys})
        done = {Verdict.DUPLICATE, Verdict.PARKED}
        return [k for k in keys if batch.validate(k.source_id, k.seq_nr, k.db_timestamp) not in done]

    async def _batch(self, session: OwnedSession, source_ids: set[str]) -> BatchVerdicts:
        if self._inline:
            self._state.forget(source_ids)
        try:
            return self._state.batch(source_ids)
        except KeyError:
            await self._transactions.look_up(session, source_ids)
            return self._state.batch(source_ids)

    async def _unknown_gaps(
        self, session: OwnedSession, batch: BatchVerdicts, page: Sequence[EventEnvelope]
    ) -> set[tuple[str, int]]:
        """Of sources without an offset, those whose event before the first one here to be handled never was."""
        if not (without_offset := batch.without_offset()):
            return set()
        unknown: list[tuple[str, int]] = []
        newest = BEGINNING
        for envelope in page:
            source_id, seq_nr, at = envelope.source_id, envelope.seq_nr, envelope.db_timestamp
            if source_id not in without_offset:
                continue
            verdict = batch.validate(source_id, seq_nr, at)
            if verdict is _DUPLICATE:  # it is before the start; what follows may not be
                continue
            without_offset.remove(source_id)
            if verdict is _UNKNOWN_SOURCE:
                unknown.append((source_id, seq_nr))
                newest = max(newest, at)
        if not unknown:
            return set()
        since = self._state.evicted_before
        async with self._reading(session) as journal:
            predecessors = await self._reader.predecessors(journal, unknown, since, newest)
        return {key for key in unknown if batch.validate_unknown(predecessors.get(key)) is _GAP}

    async def _fill(
        self, session: OwnedSession, envelope: EventEnvelope, known: int
    ) -> list[EventEnvelope] | None:
        """What a gap leaves out, as far as it was not handled and evicted; None when it is to be waited for."""
        bound = self._state.evicted_before if known == 0 else BEGINNING
        first, last = known + 1, envelope.seq_nr - 1
        async with self._reading(session) as journal:
            missing = await self._reader.missing(journal, envelope.source_id, first, last, since=bound)
        expected = envelope.seq_nr - known - 1
        if known and len(missing) < expected:
            if not self._exact:
                return None
            log.error(
                "%d events before %s were deleted before projection %r handled them",
                expected - len(missing), describe(envelope), self._name,
                extra={"action": "events_deleted", "projection": self._name},
            )  # fmt: skip
        return missing
