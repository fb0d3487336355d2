"""How a reader of slices finds late commits where the database cannot tell what is in flight: by reading twice."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import ClassVar

from journal.backtracking import INSTANT, Poll, ReadEvents, ReadKeys, Step, WritersPoll
from journal.events import Position


class IntervalBacktracking:
    """
    Backtracking where the database cannot tell what is in flight: replicas, Yugabyte, Cockroach.

    Reads what is older than ``behind``, and reads everything again when it is ``late_by`` old. A
    transaction that commits more than ``late_by`` after its timestamp was taken is missed: nothing here can
    know of it. (Pekko's rule; its window and triggers are replaced by one moving second reader, and its
    horizon is that reader's place.)

    On a standby, time is what it has replayed: its clock goes on while replay is late or paused. That time stands still
    while the primary commits nothing, and until more is replayed, nothing more can become visible: so what is there is
    read to its end, and again from the horizon on. Two commits may have the same time: the place in the log tells
    that the second one has been replayed, too.

    Args:
        start: The stored horizon.
        behind: How far the first reading stays behind the database's time: covers small clock differences.
        late_by: How much later than its timestamp a commit may become visible.
        every: How often the second reader runs.
        import_id: The last import that ``start`` accounts for.
    """

    needs_primary: ClassVar[bool] = False

    def __init__(
        self,
        start: datetime,
        *,
        behind: timedelta = timedelta(milliseconds=100),
        late_by: timedelta = timedelta(seconds=10),
        every: timedelta = timedelta(seconds=1),
        import_id: int = 0,
    ) -> None:
        self._behind = behind
        self._late_by = late_by
        self._every = every
        self._position = Position.before(start)
        self._second = Position.before(start)
        self._now = self._reach = start
        self._second_run_at = start
        self._still_since = start
        self._read_still: tuple[datetime, int] | None = None
        self._read_still_at = start
        self._again = self._second
        self._until: datetime | None = None
        self._forward = False
        self.import_id = import_id

    @property
    def position(self) -> Position:
        return self._position

    @property
    def settled(self) -> datetime | None:
        return None

    @property
    def horizon(self) -> datetime:
        return self._second.db_timestamp

    def next_step(self) -> Step:
        if self._until is not None:
            return ReadKeys(self._again, self._until)
        if self._forward:
            return ReadEvents(self._position, self._reach)
        return Poll()

    def read_again(self, since: datetime) -> None:
        self._second = min(self._second, Position.before(since))

    def unchanged(self, poll: WritersPoll) -> bool:  # noqa: ARG002 - it tells nothing about writers
        return False

    def polled(self, poll: WritersPoll) -> None:
        for number, oldest in poll.imports.items():
            if number > self.import_id:
                self.read_again(oldest)
                self.import_id = number
        still = self._take_the_time(poll)
        # What was stamped at that very time may still commit.
        settled = min(self._position.db_timestamp, self._now - self._late_by - INSTANT)
        replayed = self._now, poll.replayed
        if still >= self._every and self._read_still != replayed and self._may_read_still(poll.polled_at):
            self._read_still, self._read_still_at = replayed, poll.polled_at
            self._read_again(self._position.db_timestamp)
        elif self._second.db_timestamp < settled and self._now - self._second_run_at >= self._every:
            self._second_run_at = self._now
            self._read_again(settled)
        self._forward = True

    def _may_read_still(self, now: datetime) -> bool:
        """Replay may go on for long without a commit: then there is one reading in each interval."""
        return (
            self._read_still is None
            or self._read_still[0] != self._now
            or now - self._read_still_at >= self._every
        )

    def _take_the_time(self, poll: WritersPoll) -> timedelta:
        """Take in what time it is, and how far the first reader may go; for how long time has stood still."""
        now = poll.polled_at if poll.replayed_until is None else poll.replayed_until
        if now != self._now:
            self._now, self._still_since = now, poll.polled_at
        still = poll.polled_at - self._still_since
        # Stamps of one transaction may be a little later than its commit.
        self._reach = now - self._behind + min(still, 2 * self._behind)
        return still

    def _read_again(self, until: datetime) -> None:
        if self._second.db_timestamp < until:
            self._again, self._until = self._second, until

    def keys_read(self, last: Position | None, *, full: bool) -> None:
        if self._until is None:
            return
        if full and last is not None:
            self._again = last
        else:
            # Everything up to and including this time has been read again.
            self._again = max(self._again, last or self._again, Position.before(self._until))
            self._until = None
        # What is not as old may still be joined by a late commit.
        old_enough = Position.before(self._now - self._late_by)
        self._second = max(self._second, min(self._again, old_enough))

    def events_read(self, last: Position | None, *, full: bool) -> None:
        before = self._position
        if last is not None:
            self._position = max(self._position, last)
        self._forward = full
        if not full:
            self._position = max(self._position, Position.before(min(self._reach, self._now)))
        if self._second >= before:
            # What was old enough when it was read first is not read again: catching up costs one reading.
            old_enough = Position.before(self._now - self._late_by)
            self._second = max(self._second, min(self._position, old_enough))

    def goes_on(self, last: Position) -> bool:
        return last.db_timestamp < self._reach
