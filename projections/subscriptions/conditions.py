"""
Has conditions of subscriptions asked about events: none of them can spoil the transaction, or take without an end.

All are asked about all events in one statement. What fails at once is put aside there, event by event; what takes too
long, or too much memory, fails the statement, and is looked for by asking about fewer events, and at last about one.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple, TypeVar

from journal import (
    ALL_SLICES,
    ALL_TYPES,
    LIBRARY_TYPES,
    DatabaseError,
    InvalidPayload,
    Key,
    MissingPrivilege,
    OwnedSession,
    SliceReader,
    declared_models,
    event_type_of,
    newest_json,
)
from journal.database import Fault, fault_of, is_conflict

T = TypeVar("T")

Failed = dict[int, str]
"""Conditions that take too long for an event, or fail on it with more than an error of their own, and the errors."""

log = logging.getLogger("projections")

NARROWER = 8
"""By this many times fewer events are asked about after too many: to find one at fault takes few attempts."""

_MEMORY = {"53000", "53200"}
_CANCELLED = "57014"
_MOST = 0.9
"""Of its time, after which a cancelled statement is taken to have used it up: clocks do not run alike."""
_SLOW = 0.1
"""Of its time: a condition that takes more, for event after event, is stopped, for it holds up all others."""
_FUNCTION = "projections_conditions."
"""Of conditions, where PostgreSQL says in which function something failed."""

_BEGIN = """
SELECT set_config('statement_timeout', $1, TRUE), set_config('projections.set_apart', '', TRUE),
    set_config('projections.newest_events', $2, TRUE)
"""
_OVER = """
SELECT current_setting('projections.set_apart', TRUE), set_config('statement_timeout', '0', TRUE),
    set_config('projections.set_apart', '', TRUE)
"""
_WANTED = """
SELECT DISTINCT w.condition_id, w.of_types
FROM (
    SELECT e.entity_type, array_agg(DISTINCT e.topic) AS topics
    FROM unnest($1::text[], $2::text[]) AS e (entity_type, topic) GROUP BY e.entity_type
) AS e
CROSS JOIN LATERAL projections._wanted_conditions_v1(e.entity_type, e.topics) AS w ORDER BY w.condition_id
"""
_READ = "SELECT count(e) FROM projections._matchable_events_v1($1, $2, $3) AS e"
_OLDER = "SELECT projections._older_events_v1($1, $2, $3, $4) AS place"
_ASK = "SELECT projections._ask_alone_v1($1, $2, $3, $4, $5, $6)"
_JUDGE = "SELECT projections._judge_condition_v1($1, $2, 0, $3)"
_CHECK = "SELECT condition_id, error FROM projections._check_conditions_v1()"
_STOP = "SELECT projections._quarantine_condition_v1($1, $2)"


class TooMuch(Exception):
    """There are too many events to ask about in the time, or they are more than PostgreSQL takes at once, 1 GB."""


class _Interrupted(DatabaseError):
    """Somebody has cancelled the statement before its time was over: no condition took too long."""


class AskedOf:
    """
    Events that conditions are asked about, in their order; ``condition_id`` None: all conditions are asked.

    A row has entity type, source, number, time, slice and topic.
    """

    def __init__(self, rows: Sequence[tuple[Any, ...]], condition_id: int | None = None) -> None:
        self.entity_types: list[str] = [row[0] for row in rows]
        self.source_ids: list[str] = [row[1] for row in rows]
        self.seq_nrs: list[int] = [row[2] for row in rows]
        self.timestamps: list[datetime] = [row[3] for row in rows]
        self.slices: list[int] = [row[4] for row in rows]
        self.topics: list[str] = [row[5] for row in rows]
        self.condition_id = condition_id

    @property
    def columns(self) -> tuple[Any, ...]:
        """The first arguments of ``_match_log_v1``."""
        return self.entity_types, self.source_ids, self.seq_nrs, self.timestamps, self.slices, self.topics


class _Suspect(NamedTuple):
    condition_id: int
    of_types: bool


class Asked:
    """
    Runs what asks conditions, in a transaction; ``timeout`` is for one event, and for several together.

    Conditions see events in the newest version that this process knows.
    """

    def __init__(self, session: OwnedSession, events: AskedOf, timeout: timedelta) -> None:
        self._session = session
        self._events = events
        self._timeout = timeout
        self._newest = ""

    async def run(self, work: Callable[[Failed], Awaitable[T]]) -> T:
        """
        Do the work; it is given the conditions that the event is to be put aside for, and why.

        TooMuch: the same may pass with fewer events.
        """
        try:
            self._newest = await self._newest_events()
        except InvalidPayload as error:
            if len(self._events.topics) > 1:
                raise TooMuch from error
            unreadable = {one.condition_id: str(error) for one in await self._suspects()}
            return await self._try(self._timeout, partial(work, unreadable))
        began = time.monotonic()
        try:
            result = await self._try(self._timeout, partial(work, {}))
        except DatabaseError as error:
            _raise_unless_of_a_condition(error)
            if len(self._events.topics) > 1:
                raise TooMuch from error
        else:
            if time.monotonic() - began > self._slow:
                await self._ask_each(await self._suspects())
            return result
        suspects = await self._suspects()
        failed, limit = await self._ask_each(suspects)
        # What took too long together may do so again, and none of them be at fault.
        return await self._try((len(suspects) + 1) * limit, partial(work, failed))

    async def _newest_events(self) -> str:
        """
        Those of older versions as they are in the newest one, as _matchable_events_v1 takes them.

        Raises:
            InvalidPayload: One cannot be converted.
            TooMuch: They are too large to be given along together.
        """
        e, models = self._events, declared_models()
        wanted = [
            (source_id, seq_nr, at, slice_number, event_type_of(models[topic]).version)
            for kind, source_id, seq_nr, at, slice_number, topic in zip(*e.columns, strict=True)
            if topic in models and kind not in LIBRARY_TYPES
        ]
        if not wanted:
            return ""
        source_ids, seq_nrs, timestamps, _, versions = map(list, zip(*wanted, strict=True))
        rows = await self._session.fetch(_OLDER, source_ids, seq_nrs, timestamps, versions)
        keys = sorted((Key(*wanted[row["place"] - 1][:4]) for row in rows), key=lambda key: key.position)
        page, left = await SliceReader(ALL_TYPES, ALL_SLICES).load(self._session, keys)
        if left:
            raise TooMuch
        newest: dict[str, dict[int, Any]] = {}
        for envelope in page:
            version = event_type_of(models[envelope.event_type]).version
            newest.setdefault(envelope.source_id, {})[envelope.seq_nr] = {
                "version": version, "payload": newest_json(envelope),
            }  # fmt: skip
        return json.dumps(newest) if newest else ""

    @property
    def _slow(self) -> float:
        """Seconds for these events."""
        return _SLOW * self._timeout.total_seconds() * len(self._events.topics)

    async def _try(self, limit: timedelta, work: Callable[[], Awaitable[T]]) -> T:
        began = time.monotonic()
        try:
            async with self._session.savepoint():
                milliseconds = limit // timedelta(milliseconds=1)
                await self._session.fetchval(_BEGIN, f"{milliseconds}ms", self._newest)
                result = await work()
                set_apart = await self._session.fetchval(_OVER)
        except DatabaseError as error:
            if error.sqlstate == _CANCELLED and time.monotonic() - began < _MOST * limit.total_seconds():
                raise _Interrupted(str(error), sqlstate=_CANCELLED) from error
            raise
        for one in json.loads(set_apart or "[]"):
            _report(**one)
        return result

    async def _time_to_read(self) -> timedelta:
        """What no condition can be blamed for."""
        e = self._events
        began = time.monotonic()
        await self._session.fetchval(_READ, e.source_ids, e.seq_nrs, e.timestamps)
        return timedelta(seconds=time.monotonic() - began)

    async def _suspects(self) -> list[_Suspect]:
        e = self._events
        if e.condition_id is not None:
            return [_Suspect(e.condition_id, of_types=False)]
        rows = await self._session.fetch(_WANTED, e.entity_types, e.topics)
        return [_Suspect(row["condition_id"], row["of_types"]) for row in rows]

    async def _ask_each(self, suspects: Sequence[_Suspect]) -> tuple[Failed, timedelta]:
        """Ask each condition alone, and blame those that are slow; returns those that fail, and the limit of each."""
        reading = await self._time_to_read()
        limit = self._timeout + 4 * reading  # a condition is given copies
        failed: Failed = {}
        for one in suspects:
            began = time.monotonic()
            try:
                await self._try(limit, partial(self._ask, one.condition_id))
            except DatabaseError as error:
                _raise_unless_of_a_condition(error)
                failed[one.condition_id] = str(error)
                if (
                    one.of_types
                ):  # it does so for all events of the type, and is asked before any is looked at
                    await self._stop(one.condition_id, str(error))
                continue
            took = time.monotonic() - began - 4 * reading.total_seconds()
            if took > self._slow:
                await self._try(limit, partial(self._blame, one.condition_id, took))
        return failed, limit

    async def _blame(self, condition_id: int, took: float) -> None:
        """Count against a condition that it holds up all others: one that does so for most events is stopped."""
        number = len(self._events.topics)
        # Twice, for it answers after all, which takes one back.
        error = f"it takes {took / number:.2f} s for an event"
        await self._session.fetchval(_JUDGE, condition_id, 2 * number, error)

    async def _ask(self, condition_id: int) -> None:
        e = self._events
        await self._session.fetchval(
            _ASK, condition_id, e.entity_types, e.source_ids, e.seq_nrs, e.timestamps, e.topics
        )

    async def _stop(self, condition_id: int, error: str) -> None:
        await self._session.fetchval(_STOP, condition_id, error)
        _report(condition_id, error, stopped=True)


async def check_again(session: OwnedSession) -> None:
    """Check conditions that an earlier version of the schema has accepted; those that are refused now are stopped."""
    for row in await session.fetch(_CHECK):
        _report(row["condition_id"], row["error"], stopped=True)


def _report(condition: int, error: str, *, stopped: bool) -> None:
    if stopped:
        log.error(
            "condition %d of subscriptions is stopped, and what it is to be asked waits: %s", condition, error,
            extra={"action": "condition_quarantined", "condition": condition},
        )  # fmt: skip
    else:
        log.warning(
            "condition %d of subscriptions failed on events, which wait: %s", condition, error,
            extra={"action": "condition_failed", "condition": condition},
        )  # fmt: skip


def _raise_unless_of_a_condition(error: DatabaseError) -> None:
    if _is_of_no_condition(error):
        raise error


def _is_of_no_condition(error: DatabaseError) -> bool:
    """What a condition cannot bring about: it may use up memory, take long, or be wrong by itself."""
    if isinstance(error, MissingPrivilege):
        return _FUNCTION not in error.context  # what a condition lacks is its own
    if isinstance(error, _Interrupted) or is_conflict(error):
        return True
    return fault_of(error) is Fault.DATABASE and error.sqlstate not in _MEMORY
