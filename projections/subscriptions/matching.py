"""
Matching: a projection over all entity types, which finds for every event the subscriptions that it is for.

It runs on slice ranges as any projection does, so it scales and survives as they do; what it writes commits with its
offsets, so each event is matched once. The work itself is done by the database, a batch of events at a time.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from datetime import timedelta

from journal import ALL_TYPES, EventEnvelope, InvalidValue, OwnedSession, Row, slice_ranges
from projections.defining import ExactlyOnce, Group, Kind, Projection
from projections.failing import Recovery
from projections.subscriptions.catching_up import CatchingUp
from projections.subscriptions.conditions import NARROWER, Asked, AskedOf, Failed, TooMuch, check_again
from projections.subscriptions.unanswered import Unanswered

_BATCH = 5000
_QUICK = 0.25
"""Of its time: a batch that takes less is followed by one of twice the size."""
_REMEMBERED = 10_000
"""Topics whose subscriptions a range remembers."""
_ASKED = 500
"""Topics that are asked about in one statement, for which there is a limit of time."""
_DUE = 1000
_EXPIRE_EVERY = timedelta(minutes=1)
"""How often one of all processes that match removes the subscriptions that nobody uses."""
_CHORE = "subscriptions"
_LOOKS_IN_A_TURN = 4
_MOST_STEPS = 10
"""Of a turn; the next one goes on."""

_LOOK = "SELECT * FROM projections._look_at_matching_v1()"
_BEGIN = "SELECT projections._begin_matching_v1($1)"
_TURN = "SELECT projections._take_turn_v1($1, $2)"
_EXPIRE = "SELECT projections._expire_subscriptions_v1()"
_STATE = "SELECT projections._subscriptions_state_v1()"
_INTERESTS = "SELECT i.topic, i::text AS interest FROM projections._interests_v1($1, $2) AS i"
_MATCH = """
SELECT projections._match_log_v1(
    $1, $2, $3, $4, $5, $6, $7::text[]::projections.interests[], $8::text::jsonb
)
"""
_MATCH_DUE = "SELECT projections._match_due_v1($1, $2::text::jsonb)"
_DUE_EVENTS = """
SELECT 'published' AS entity_type, source_id, seq_nr, db_timestamp, slice, topic FROM projections.directed_events
WHERE NOT matched AND not_before <= clock_timestamp() ORDER BY not_before LIMIT $1 FOR UPDATE SKIP LOCKED
"""


class Matching:
    """
    Matches the events of all entity types with all subscriptions, in the order of their times.

    Give it to :func:`projections.run` as its discovery. Any number of processes may: they share the ranges.

    Args:
        ranges: Cut the slices into this number of ranges, where nobody has matched before.
        condition_timeout: How long one condition may take for one event. An event that it takes longer for, or fails
            on, waits for somebody to decide; a condition that fails on most is stopped, and what comes for it waits.

    Raises:
        InvalidValue: ``ranges`` is not 1 to 1024, or the time is shorter than a millisecond.
    """

    def __init__(self, ranges: int = 1, condition_timeout: timedelta = timedelta(seconds=2)) -> None:
        if condition_timeout < timedelta(milliseconds=1):  # for PostgreSQL, 0 means no limit
            raise InvalidValue(f"condition_timeout must be 1 ms or longer, not {condition_timeout}")
        self._min_slices = [one.min_slice for one in slice_ranges(ranges)]
        self._timeout = condition_timeout
        self._projection = Projection(
            "matching", ALL_TYPES, 1, Kind.HEADS, {}, lambda: _Matcher(condition_timeout), ExactlyOnce(),
            Recovery.fail(), Group(), "ignore", _BATCH, (),
        )  # fmt: skip
        self._unanswered = Unanswered(condition_timeout)
        self._catching_up = CatchingUp(condition_timeout)
        self._looks_at = 0.0

    async def tend(self, session: OwnedSession) -> Sequence[Projection]:
        """Match events that are due, or wait for a condition; returns the projection that matches."""
        look = await session.fetchrow(_LOOK)
        assert look is not None  # noqa: S101 - the function returns one row
        if not look["begun"]:  # or begun no more, where the database went back in time
            await session.fetchval(_BEGIN, self._min_slices)
        if look["unchecked"]:
            await check_again(session)
        while look["due"] and await self._match_due(session, _DUE):
            pass
        if look["behind"]:
            await self._unanswered.go_on(session)
        if look["history"]:
            await self._catching_up.go_on(session)
        await self._expire(session)
        return [self._projection]

    async def _expire(self, session: OwnedSession) -> None:
        """When it is this process's turn, remove subscriptions that nobody uses, some of them in each statement."""
        now = asyncio.get_running_loop().time()
        if now < self._looks_at:
            return
        self._looks_at = now + _EXPIRE_EVERY.total_seconds() / _LOOKS_IN_A_TURN
        if await session.fetchval(_TURN, _CHORE, _EXPIRE_EVERY):
            for _ in range(_MOST_STEPS):
                if not await session.fetchval(_EXPIRE):
                    break

    async def _match_due(self, session: OwnedSession, limit: int) -> int:
        """Match what is due, up to a number, in a transaction; returns how many events that were."""
        rows: Sequence[Row] = ()

        async def match(failed: Failed) -> int:
            matched: int = await session.fetchval(_MATCH_DUE, len(rows), json.dumps(failed))
            return matched

        try:
            async with session.transaction():
                if not (rows := await session.fetch(_DUE_EVENTS, limit)):
                    return 0
                asked = AskedOf([tuple(row.values()) for row in rows])
                return await Asked(session, asked, self._timeout).run(match)
        except TooMuch:
            return await self._match_due(session, max(1, len(rows) // NARROWER))


class _Matcher:
    """Matches the batches of one range; a batch is a transaction, which stores the range's offsets too."""

    def __init__(self, timeout: timedelta) -> None:
        self._timeout = timeout
        self._interests = _Interests()
        self._width = _BATCH

    async def handle(self, session: OwnedSession, envelopes: Sequence[EventEnvelope]) -> None:
        """Match events, in their order: fewer at a time where all conditions together take too long for more."""
        done = 0
        while done < len(envelopes):
            part = envelopes[done : done + self._width]
            began = time.monotonic()
            try:
                await self._match(session, part)
            except TooMuch:
                self._width = max(1, len(part) // NARROWER)
                continue
            done += len(part)
            if time.monotonic() - began < _QUICK * self._timeout.total_seconds():
                self._width = min(_BATCH, 2 * self._width)

    async def _match(self, session: OwnedSession, envelopes: Sequence[EventEnvelope]) -> None:
        asked = AskedOf(
            [(e.entity_type, e.source_id, e.seq_nr, e.db_timestamp, e.slice, e.event_type) for e in envelopes]
        )

        async def match(failed: Failed) -> None:
            interests = await self._interests.of(
                session, set(zip(asked.entity_types, asked.topics, strict=True))
            )
            await session.fetchval(_MATCH, *asked.columns, interests, json.dumps(failed))

        await Asked(session, asked, self._timeout).run(match)


class _Interests:
    """
    Remembers which subscriptions want which topics of which entity types, until any subscription changes.

    As _match_log_v1 takes them, each a row in the text form. It looks after the current events were read: what was
    committed before them is never missed. Those with a condition that name no topic are remembered as of None.
    """

    def __init__(self) -> None:
        self._state = ""
        self._known: dict[tuple[str, str | None], list[str]] = {}

    async def of(self, session: OwnedSession, topics: set[tuple[str, str]]) -> list[str]:
        """Those in these topics, each with its entity type, and in all of these types."""
        state: str = await session.fetchval(_STATE)
        if state != self._state or len(self._known) > _REMEMBERED:
            self._state, self._known = state, {}
        wanted: set[tuple[str, str | None]] = {*topics, *((entity_type, None) for entity_type, _ in topics)}
        unknown: dict[str, list[str | None]] = {}
        for entity_type, topic in wanted - self._known.keys():
            unknown.setdefault(entity_type, []).append(topic)
        for entity_type, names in unknown.items():
            for first in range(0, len(names), _ASKED):
                await self._read(session, entity_type, names[first : first + _ASKED])
        return [interest for each in wanted for interest in self._known[each]]

    async def _read(self, session: OwnedSession, entity_type: str, topics: list[str | None]) -> None:
        found: dict[tuple[str, str | None], list[str]] = {(entity_type, topic): [] for topic in topics}
        for row in await session.fetch(_INTERESTS, entity_type, topics):
            found[entity_type, row["topic"]].append(row["interest"])
        self._known |= found
