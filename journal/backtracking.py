"""
How a reader of slices loses no late commit: pure state machines, no I/O.

A timestamp is taken before its transaction commits, so an event may appear behind the reader's position. A
state machine says what to read next and gets what was found; ``horizon`` is the time before which nothing
can appear any more, and everything has been read: where a restart begins.

docs/decisions/backtracking.md has the argument and the measurements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import ClassVar, Protocol, TypeAlias

from journal.events import Position

INSTANT = timedelta(microseconds=1)
CLOCK_MARGIN = timedelta(milliseconds=20)
"""Backward steps of the database's clock that do no harm."""
END_OF_TIME = datetime(9998, 12, 31, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class WritersPoll:
    """
    What one look at the database told, taken in one statement.

    Args:
        polled_at: The database's time, from before the list of holders was made.
        holders: Transactions that hold the append lock; a leading ``p`` marks one that had another name before, such as
            one that is prepared.
        imports: Imports of history since the poll before: the time of their oldest event, by number.
        asked_at: The reader's own steady clock before it polled, in seconds.
        told_at: The same clock when it had the answer.
        replayed_until: On a standby, the primary's time up to which it has replayed what was committed.
        starts: When holders began, of those that show it.
        replayed: How far the log is, in bytes; on a standby, how far it is replayed.
    """

    polled_at: datetime
    holders: frozenset[str] = frozenset()
    imports: Mapping[int, datetime] = field(default_factory=dict)
    asked_at: float = 0.0
    told_at: float = 0.0
    replayed_until: datetime | None = None
    starts: Mapping[str, datetime] = field(default_factory=dict)
    replayed: int = 0


@dataclass(frozen=True, slots=True)
class Poll:
    """Look at the writers, then tell :meth:`Backtracking.polled`."""


@dataclass(frozen=True, slots=True)
class ReadKeys:
    """Read a page of keys behind the position, then tell :meth:`Backtracking.keys_read`."""

    after: Position
    until: datetime


@dataclass(frozen=True, slots=True)
class ReadEvents:
    """Read a page of events, then tell :meth:`Backtracking.events_read`."""

    after: Position
    until: datetime


Step: TypeAlias = Poll | ReadKeys | ReadEvents


class Backtracking(Protocol):
    """What to read next, so that nothing is lost."""

    needs_primary: ClassVar[bool]
    """Whether it relies on what a standby does not show."""

    import_id: int
    """The last import that the horizon accounts for."""

    @property
    def horizon(self) -> datetime:
        """No event before this time can appear any more, and all of them have been read."""
        ...

    @property
    def position(self) -> Position:
        """The last event read in the order of the log."""
        ...

    @property
    def settled(self) -> datetime | None:
        """No event before this time can appear any more, though some may not have been read; None: not known."""
        ...

    def next_step(self) -> Step:
        """What to do now."""
        ...

    def polled(self, poll: WritersPoll) -> None:
        """Take in a poll; reads that follow must be later statements than it."""
        ...

    def read_again(self, since: datetime) -> None:
        """Look for events from a time on with the next poll: some may be there that were not when it was read."""
        ...

    def unchanged(self, poll: WritersPoll) -> bool:
        """Whether a poll that also saw no event after the position changes nothing: it may be passed over."""
        ...

    def keys_read(self, last: Position | None, *, full: bool) -> None:
        """Take in a page of keys: its last place, and whether more may follow."""
        ...

    def events_read(self, last: Position | None, *, full: bool) -> None:
        """Take in a page of events: its last place, and whether more may follow."""
        ...

    def goes_on(self, last: Position) -> bool:
        """Whether a full page that ends here is followed by the next one, without a poll in between."""
        ...


class _Window:
    """Time behind the position that has to be read again, from a place to a time, page by page."""

    def __init__(self, start: datetime, until: datetime) -> None:
        self.after = Position.before(start)
        self.until = until


class WriterLockBacktracking:
    """
    Backtracking that knows which transactions are in flight, by the lock that every append takes first.

    An event that is not visible after a poll belongs to a transaction that the poll saw, or to one that took
    the lock, and so read the clock, after it. A transaction that a poll is the first to see did not hold the
    lock at the poll before: its timestamps are not older than that. So when one ends, reading again from its
    lower bound finds all of its events, and when none ends, from the time of the poll before: a short
    transaction can begin and end unseen.

    Where events are stamped with the start of their transaction, holders are all sessions that may commit stamps from
    before the poll, and the bound of one that shows that start is known. One that does not may have been stamped; but
    at the poll before, it waited for what to do, or showed what it did.

    Args:
        start: The stored horizon.
        margin: Taken off every bound, for small steps of the clock.
        import_id: The last import that ``start`` accounts for.
        kept: How far back what is handled is known. Where the first poll shows a time before ``start``, the clock was
            set back while nobody read, and nobody knows when: what was stamped in all that time is read again.
    """

    needs_primary: ClassVar[bool] = True
    by_time: ClassVar[bool] = True
    """Whether the time of an event is one, and no number in its place."""
    settles_after: ClassVar[timedelta] = CLOCK_MARGIN
    """How long before what is in flight everything is settled, for who reads once and does not look again."""

    def __init__(
        self,
        start: datetime,
        *,
        margin: timedelta = CLOCK_MARGIN,
        import_id: int = 0,
        kept: timedelta = timedelta(0),
    ) -> None:
        self._margin = margin
        self._kept = kept
        self._start = start
        self._polled_at = start
        self._asked_at: float | None = None
        self._bounds: dict[str, datetime] = {}
        self._poll: WritersPoll | None = None
        self._window: _Window | None = None
        self._forward = False
        self._at_end = False
        self._position = Position.before(start - margin)
        self.import_id = import_id

    @property
    def position(self) -> Position:
        return self._position

    @property
    def settled(self) -> datetime | None:
        return min([self._polled_at, *self._bounds.values()]) - self._margin

    @property
    def horizon(self) -> datetime:
        settled = min([self._polled_at, *self._bounds.values()])
        # The position begins a margin before the start, which was settled already.
        read = max(self._position.db_timestamp, self._start)
        return settled if self._at_end else min(settled, read)

    def next_step(self) -> Step:
        if self._window is not None:
            return ReadKeys(self._window.after, self._window.until)
        if self._forward:
            return ReadEvents(self._position, END_OF_TIME)
        return Poll()

    def read_again(self, since: datetime) -> None:
        # As if a writer of that time were about to end; the horizon goes back until that has been read.
        self._bounds["again"] = since

    def unchanged(self, poll: WritersPoll) -> bool:
        return (
            self._at_end
            and self._position.db_timestamp < self._polled_at - self._margin
            and poll.polled_at >= self._polled_at
            and poll.holders.issuperset(self._bounds)
            and not any(number > self.import_id for number in poll.imports)
        )

    def polled(self, poll: WritersPoll) -> None:
        self._look_for_a_clock_that_went_back(poll)
        for number, oldest in poll.imports.items():
            if number > self.import_id:
                # As if a writer of that time had just ended; the horizon goes back until that has been read.
                self._bounds[f"import {number}"] = oldest
                self.import_id = number
        gone = [bound for holder, bound in self._bounds.items() if holder not in poll.holders]
        start = min([self._polled_at, *gone]) - self._margin
        self._poll = poll
        if start <= self._position.db_timestamp:
            self._window = _Window(start, self._position.db_timestamp)
        else:
            self._window_is_read()

    def _look_for_a_clock_that_went_back(self, poll: WritersPoll) -> None:
        """
        Lower all bounds to what the clock may have shown since the poll before.

        It went back by more than the margin when it shows less time gone by than the reader's own clock.
        Events were stamped from the moment of that step on, which is no longer ago than the poll before. Of the reader
        before this one, nobody knows when it polled last.
        """
        if self._asked_at is not None:
            earliest = poll.polled_at - timedelta(seconds=poll.told_at - self._asked_at)
        elif poll.polled_at < self._polled_at - self._margin:
            earliest = poll.polled_at - self._kept
        else:
            return
        if earliest < self._polled_at - self._margin:
            self._polled_at = earliest
            self._bounds = {holder: min(bound, earliest) for holder, bound in self._bounds.items()}

    def keys_read(self, last: Position | None, *, full: bool) -> None:
        if self._window is not None and full and last is not None:
            self._window.after = last
        else:
            self._window_is_read()

    def _window_is_read(self) -> None:
        """Only now may the poll count: a window that is cut short has not found everything."""
        if self._poll is not None:
            gone = [bound for holder, bound in self._bounds.items() if holder not in self._poll.holders]
            self._bounds = {holder: self._bound_of(holder, self._poll, gone) for holder in self._poll.holders}
            self._polled_at, self._asked_at = self._poll.polled_at, self._poll.asked_at
        self._poll = self._window = None
        self._forward = True
        self._at_end = False

    def _bound_of(self, holder: str, poll: WritersPoll, gone: Sequence[datetime]) -> datetime:
        """What a holder has not stamped events before: a new one that shows no start, not before the last poll."""
        bound = self._bounds.get(holder) or poll.starts.get(holder) or self._polled_at
        # A transaction that is prepared changes its name. For a while it may show both: whichever goes may be it.
        return min([bound, *gone]) if holder.startswith("p") else bound

    def events_read(self, last: Position | None, *, full: bool) -> None:
        if last is not None:
            self._position = max(self._position, last)
        self._forward = full and self.goes_on(self._position)
        if not full:
            self._at_end = True
            # Nothing visible lies between here and that poll: the next page need not start so far back.
            caught_up = Position.before(self._polled_at - self._margin - INSTANT)
            self._position = max(self._position, caught_up)

    def goes_on(self, last: Position) -> bool:
        # Behind the last poll all is settled but what the bounds know.
        return last.db_timestamp < self._polled_at - self._margin


class SequenceBacktracking(WriterLockBacktracking):
    """
    Backtracking for events that are numbered inside their INSERT, which has locked the table before.

    The number n is the time n microseconds after 1970, and the lowest that may still be drawn is the clock: it never
    steps, so there is no margin. A sequence that is set back by hand is taken for a clock that went back.

    Args:
        start: The stored horizon.
        margin: Of a clock; there is none.
        import_id: As for the writer lock.
        kept: Of time; numbers do not go back by themselves.
    """

    by_time: ClassVar[bool] = False
    settles_after: ClassVar[timedelta] = INSTANT

    def __init__(
        self,
        start: datetime,
        *,
        margin: timedelta = timedelta(0),  # noqa: ARG002
        import_id: int = 0,
        kept: timedelta = timedelta(0),  # noqa: ARG002
    ) -> None:
        super().__init__(start, margin=timedelta(0), import_id=import_id)

    def polled(self, poll: WritersPoll) -> None:
        # Numbers are drawn, or not, however much time goes by.
        super().polled(replace(poll, asked_at=0.0, told_at=0.0))
