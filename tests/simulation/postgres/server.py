"""The server: tables, locks, backends, its clock, and the lives that it lives."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from datetime import UTC, datetime, timedelta
from random import Random

from tests.simulation.loop import SimulatedLoop
from tests.simulation.postgres.backend import Backend
from tests.simulation.postgres.locks import Locks
from tests.simulation.postgres.storage import NEVER, Table, Transaction

BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
SOURCES_LOCK = "sources"
"""ROW EXCLUSIVE on the table of sources: what every append takes first."""
MATCHES, DELIVERIES, RETRIES = "matches", "deliveries", "retries"
"""Sequences that number them: after a crash, numbers are passed over or come again."""
SYSTEM = 7_000_000_000_000_000_001
_LOGGED_AHEAD = 32  # numbers of a sequence
_GO_BACK = {MATCHES, DELIVERIES, RETRIES}
_COMMIT_RECORD, _ROW_RECORD = 48, 64  # bytes in the log


class Server:
    """
    A server with one database, in which the schema ``projections`` is installed.

    Args:
        loop: Its time is what the server's clock shows, but for ``clock_ahead``.
        choices: What the server leaves open is drawn from it.
        breathes: The share of statements within a function before which others may go on.
        system: Identifies its cluster.
    """

    def __init__(
        self, loop: SimulatedLoop, choices: Random, *, breathes: float = 0.1, system: int = SYSTEM
    ) -> None:
        self.system = system
        self.loop = loop
        self.choices = choices
        self.breathes = breathes
        self.clock_ahead = timedelta(0)
        self.tables = {
            table.name: table
            for table in (
                Table("sources", "source_id"),
                Table("events", "source_id", "seq_nr", "db_timestamp"),
                Table("projections", "name", "journal"),
                Table("projection_ranges", "projection_id", "min_slice"),
                Table("source_offsets", "projection_id", "source_id"),
                Table("parked_sources", "projection_id", "source_id"),
                Table("workers", "owner"),
                Table("handled", "number"),
                Table("imports", "import_id"),
                Table("outbox", "source_id", "seq_nr"),
                Table("subscription_groups", "name"),
                Table("subscriptions", "identity"),
                Table("group_handlers", "subscription_id", "name"),
                Table("group_ranges", "group_id", "min_slice", "handler"),
                Table("matches", "group_id", "match_id", "slice", "matched_at"),
                Table("group_retries", "group_id", "handler", "digest"),
                Table("webhook_endpoints", "endpoint_id"),
                Table("webhook_circuits", "endpoint_id"),
                Table("webhook_secrets", "endpoint_id"),
                Table("webhook_limits", "name"),
                Table("webhook_deliveries", "endpoint_id", "event_id"),
                Table("webhook_events", "event_time", "event_id"),
                Table("webhook_attempts", "attempted_at", "attempt_id"),
                Table("webhook_log_ids", "id", "kind"),
                Table("turns", "chore"),
            )
        }
        self.place = 0
        """In the order of commits, the last one."""
        self.timeline = 1
        self.started_at = self.clock()
        self.wal = 0x1000000
        self._wal_at = {0: self.wal}
        self.sequences: dict[str, int] = {}
        self._logged: dict[str, list[tuple[int, int]]] = {}
        """For each sequence after which commit it was logged up to which number it is used up after a crash."""
        self.locks = Locks()
        self.prepared: dict[str, Transaction] = {}
        self._ever_prepared: list[Transaction] = []
        self._locks_of_prepared: dict[str, tuple[list[Hashable], str]] = {}
        self.prepared_keep_their_names = choices.random() < 0.5
        self.backends: list[Backend] = []
        self._backend_numbers = 0
        self.up = True
        self.listening: dict[str, list[Callable[[], None]]] = {}

    def clock(self) -> datetime:
        """``clock_timestamp()``."""
        return BEGINNING + timedelta(seconds=self.loop.time()) + self.clock_ahead

    def connect(self, hung_up: Callable[[], None]) -> Backend:
        """Start a backend, which calls ``hung_up`` when it ends the connection."""
        self._backend_numbers += 1
        backend = Backend(self, self._backend_numbers, hung_up)
        self.backends.append(backend)
        return backend

    def next_of(self, sequence: str) -> int:
        """The next number of a sequence, which no rollback takes back; a crash may."""
        number = self.sequences[sequence] = self.sequences.get(sequence, 0) + 1
        if sequence in _GO_BACK:
            logged = self._logged.setdefault(sequence, [(0, 0)])
            if number > logged[-1][1]:
                logged.append((self.place, number + _LOGGED_AHEAD))
        return number

    def make_visible(self, transaction: Transaction) -> None:
        """Give a transaction its place in the order of commits: from now on, snapshots see it."""
        if not transaction.changed:
            return
        self.wal += _COMMIT_RECORD + _ROW_RECORD * len(transaction.changed)
        self.place += 1
        transaction.place = self.place
        self._wal_at[self.place] = self.wal

    def end(self, transaction: Transaction) -> None:
        """Release what a transaction holds, once it is visible or undone."""
        transaction.ended = True
        self.locks.release_all(transaction)

    def undo(self, transaction: Transaction, after: int = 0) -> None:
        """Take back what a transaction has done, all of it or what came after so many changes."""
        for table, key, version, made in reversed(transaction.changed[after:]):
            table.undo(key, version, made=made)
        del transaction.changed[after:]

    def notify(self, channel: str) -> None:
        """Tell those who listen."""
        for heard in list(self.listening.get(channel, ())):
            heard()

    def crash(self) -> None:
        """End all backends at once; what was not committed is undone when it starts again."""
        self.up = False
        for backend in self.backends:
            backend.die()
        self.backends.clear()
        self.listening.clear()

    def start(self, place: int | None = None, *, promoted: bool = False) -> None:
        """
        Start after a crash, perhaps in an earlier state.

        Args:
            place: The last transaction in the order of commits that is kept; None: the last there is.
            promoted: A standby takes over, which begins another timeline.
        """
        place = self.place if place is None else place
        kept = [one for one in self._ever_prepared if one.prepared_after <= place < one.place and one.changed]
        for table in self.tables.values():
            table.go_back(place, kept)
        self.locks = Locks()
        for transaction in kept:
            transaction.place, transaction.ended = NEVER, False
            self._lock_again(transaction)
        self.prepared = {transaction.gid or "": transaction for transaction in kept}
        self._ever_prepared = [one for one in self._ever_prepared if one.prepared_after <= place]
        self._numbers_go_back(place)
        self.wal = self._wal_at[place]
        self._wal_at = {at: wal for at, wal in self._wal_at.items() if at <= place}
        self.place = place
        self.timeline += promoted
        self.started_at = self.clock()
        self.up = True

    def _numbers_go_back(self, place: int) -> None:
        """Numbers go on from where the log has them: some are passed over, others come again."""
        for sequence, logged in self._logged.items():
            logged[:] = [(at, number) for at, number in logged if at < place] or [(0, 0)]
            self.sequences[sequence] = logged[-1][1]

    def prepare(self, transaction: Transaction, gid: str) -> None:
        """Keep a transaction, with its locks, until somebody ends it by its name."""
        transaction.gid, transaction.prepared_after = gid, self.place
        if not self.prepared_keep_their_names:
            transaction.virtual = f"-1/{self.next_of('transactions')}"
        self.prepared[gid] = transaction
        self._ever_prepared.append(transaction)
        self._locks_of_prepared[gid] = list(transaction.locks), SOURCES_LOCK

    def _lock_again(self, transaction: Transaction) -> None:
        assert transaction.gid is not None
        rows, table = self._locks_of_prepared[transaction.gid]
        self.locks.take_free(transaction, rows)
        self.locks.share(transaction, table)
