"""One projection in full: asked for by the pages that show it, and looked at once for all of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

import offsets
from journal import Database, Journals, NotFound
from projections.monitoring.cache import Cache, LookFailed
from projections.monitoring.holding_back import held_back
from projections.monitoring.lag import ProjectionLag, projection_lags
from projections.monitoring.snapshot import OpenWriter, open_writers, time_and_name
from projections.monitoring.web import snapshot_json
from projections.monitoring.web.history import LagHistory

KEEP = timedelta(seconds=1)
"""How long a look at a projection is kept."""
_KEPT = 32
"""Looks that are kept; of more, those asked for longest ago are dropped."""


class _Seen(NamedTuple):
    at: datetime
    found: ProjectionLag
    kept: snapshot_json.Kept
    writers: Sequence[OpenWriter]


class Details:
    """
    Answers what one projection does, slice by slice.

    Args:
        database: What is looked at; one connection of it is in use while a look is under way.
        history: The lines of the last minutes.
        journal: What projections read, if that is in another database.
    """

    def __init__(self, database: Database, history: LagHistory, *, journal: Journals = None) -> None:
        self._database = database
        self._history = history
        self._journal = journal
        self._looks: OrderedDict[str, Cache[_Seen | None]] = OrderedDict()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """At the end of the block, end what is under way."""
        try:
            yield
        finally:
            for look in self._looks.values():
                await look.close()

    async def answer(self, request: Request) -> Response:
        """Tell of the projection ``name``; of its lines, the points after the time ``since``."""
        name, since = request.query_params.get("name", ""), request.query_params.get("since", "0")
        try:
            after = float(since)
        except ValueError:
            return _failed(400, f"since: {since!r} is not a number of seconds")
        try:
            seen = await self._look_at(name).get()
        except LookFailed as error:
            return _failed(503, str(error))
        if seen is None:
            return _failed(
                404, f"there is no projection {name!r}, or it reads several journals: name one part of it"
            )
        number = seen.found.projection_id
        holds = held_back(seen.found, seen.writers, seen.at, self._history.rate(number))
        points = (
            one for one in self._history.points(number) if (snapshot_json.seconds(one.at) or 0.0) > after
        )
        told = snapshot_json.detail(seen.found, holds, points, seen.at, seen.kept)
        return Response(snapshot_json.encoded(**told), media_type="application/json")

    def _look_at(self, name: str) -> Cache[_Seen | None]:
        if name not in self._looks:
            self._looks[name] = Cache(partial(self._read, name), keep=KEEP)
        self._looks.move_to_end(name)
        for other in [*self._looks][:-_KEPT]:
            if not self._looks[other].is_looking:  # somebody waits for it
                del self._looks[other]
        return self._looks[name]

    async def _read(self, name: str) -> _Seen | None:
        if "\0" in name:  # no text of the database has that
            return None
        async with self._database.session() as session:
            try:
                found = await projection_lags(session, [name], by_slice=True, journal=self._journal)
            except NotFound:
                return None
            if len(found) > 1:
                return None
            number = found[0].projection_id
            parked: Sequence[offsets.ParkedSource] = ()
            if found[0].parked:
                parked = await offsets.ParkedSources(session).list(name, limit=snapshot_json.LISTED)
            changes = await offsets.range_changes(session, number)
            kept = snapshot_json.Kept(parked, changes, await offsets.read_models(session, number))
            at, _ = await time_and_name(session)
            # Of a journal elsewhere they are not to be seen here.
            writers = await open_writers(session) if found[0].journal is None else ()
            return _Seen(at, found[0], kept, writers)


def _failed(status: int, reason: str) -> Response:
    return JSONResponse({"error": reason}, status)
