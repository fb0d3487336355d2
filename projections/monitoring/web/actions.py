"""What the page's buttons do."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

import offsets
from journal import Database, MissingPrivilege, ProjectionsError, hide_password
from projections.monitoring.registration import ActionRefused, Form, PageAction, Ranges, Text, registered
from projections.monitoring.web.csrf import CrossSite

__all__ = ["Actions"]

_MAX_BODY = 8 * 1024
"""Bytes: a form has a few names."""


class _Projection(Form):
    projection: Text


class _Rescale(_Projection):
    ranges: Ranges


class _Decide(_Projection):
    source_id: Text
    seq_nr: int
    """Of the event that was shown: if the source waits at another one by now, nothing is decided."""


async def _pause(database: Database, form: _Projection) -> str:
    async with database.transaction() as session:
        await offsets.set_paused(session, form.projection, paused=True)
    return f"{form.projection} is paused after the current batches"


async def _resume(database: Database, form: _Projection) -> str:
    async with database.transaction() as session:
        await offsets.set_paused(session, form.projection, paused=False)
    return f"{form.projection} goes on"


async def _rescale(database: Database, form: _Rescale) -> str:
    async with database.session() as session:
        await offsets.rescale(session, form.projection, form.ranges)
    return f"{form.projection} is cut into {form.ranges} {'range' if form.ranges == 1 else 'ranges'}"


async def _retry(database: Database, form: _Decide) -> str:
    async with database.transaction() as session:
        await offsets.ParkedSources(session).retry(form.projection, form.source_id, seq_nr=form.seq_nr)
    return f"{form.source_id} is tried again"


async def _drop(database: Database, form: _Decide) -> str:
    async with database.transaction() as session:
        await offsets.ParkedSources(session).drop(form.projection, form.source_id, seq_nr=form.seq_nr)
    return f"{form.source_id} goes on after event {form.seq_nr}"


_ACTIONS = {
    "pause": PageAction(_Projection, _pause),
    "resume": PageAction(_Projection, _resume),
    "rescale": PageAction(_Rescale, _rescale),
    "retry": PageAction(_Decide, _retry),
    "drop": PageAction(_Decide, _drop),
}
_STATUSES: Mapping[type[ProjectionsError], int] = {
    offsets.UnknownProjection: 404,
    offsets.NotParked: 409,
    ActionRefused: 409,
    MissingPrivilege: 403,
}


class Actions:
    """
    Follows requests of the page, and of nobody else.

    Args:
        database: The database that has the schema, as :func:`journal.connect` opens it.
        cross_site: Tells the page's requests from others.
    """

    def __init__(self, database: Database, cross_site: CrossSite) -> None:
        self._database = database
        self._cross_site = cross_site
        self._actions, self._statuses = dict(_ACTIONS), dict(_STATUSES)
        for other in registered():
            self._actions.update(other.actions)
            self._statuses.update(other.statuses)

    async def follow(self, request: Request) -> Response:
        """Do what is asked; the answer says what was done, or why not."""
        try:
            self._cross_site.check(request)
            form, follow = self._found(request.path_params["action"])
            said = await follow(self._database, form.model_validate_json(await _body(request)))
        except HTTPException as refused:
            return _failed(refused.status_code, refused.detail)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            return _failed(400, f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": "))
        except ProjectionsError as error:
            return _failed(self._status(error), hide_password(str(error)))
        return JSONResponse({"done": said})

    def _found(self, name: str) -> PageAction:
        try:
            return self._actions[name]
        except KeyError:
            raise HTTPException(
                404, f"there is no action {name!r}; those there are: {', '.join(self._actions)}"
            ) from None

    def _status(self, error: ProjectionsError) -> int:
        return next((status for kind, status in self._statuses.items() if isinstance(error, kind)), 503)


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MAX_BODY:
            raise HTTPException(413, f"a body is at most {_MAX_BODY} bytes")
    return bytes(body)


def _failed(status: int, reason: str) -> JSONResponse:
    return JSONResponse({"error": reason}, status)
