"""What the page's buttons do."""

from __future__ import annotations

from typing import Any, cast, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

import offsets
from journal import Database, MissingPrivilege, NotAllowed, NotFound, ProjectionsError, hide_password
from projections.extras import registered
from projections.monitoring.registration import GROUP, Action, Ranges, Text
from projections.monitoring.web.csrf import CrossSite

_MAX_BODY = 8 * 1024
"""Bytes: a form has a few names."""


async def _pause(database: Database, projection: Text) -> str:
    async with database.session() as session, session.transaction():
        await offsets.set_paused(session, projection, paused=True)
    return f"{projection} is paused after the current batches"


async def _resume(database: Database, projection: Text) -> str:
    async with database.session() as session, session.transaction():
        await offsets.set_paused(session, projection, paused=False)
    return f"{projection} goes on"


async def _rescale(database: Database, projection: Text, ranges: Ranges) -> str:
    async with database.session() as session:
        await offsets.rescale(session, projection, ranges)
    return f"{projection} is cut into {ranges} {'range' if ranges == 1 else 'ranges'}"


# With the event that was shown: if the source waits at another one by now, nothing is decided.
async def _retry(database: Database, projection: Text, source_id: Text, seq_nr: int) -> str:
    async with database.session() as session, session.transaction():
        await offsets.ParkedSources(session).retry(projection, source_id, seq_nr=seq_nr)
    return f"{source_id} is tried again"


async def _drop(database: Database, projection: Text, source_id: Text, seq_nr: int) -> str:
    async with database.session() as session, session.transaction():
        await offsets.ParkedSources(session).drop(projection, source_id, seq_nr=seq_nr)
    return f"{source_id} goes on after event {seq_nr}"


_ACTIONS: dict[str, Action] = {
    "pause": _pause, "resume": _resume, "rescale": _rescale, "retry": _retry, "drop": _drop,
}  # fmt: skip
_UNKNOWN = frozenset(("unknown_group", "unknown_projection"))


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
        self._actions = {**_ACTIONS}
        for other in registered(GROUP):
            self._actions |= other.actions
        self._forms = {name: _form_of(action) for name, action in self._actions.items()}

    async def follow(self, request: Request) -> Response:
        """Do what is asked; the answer says what was done, or why not."""
        try:
            self._cross_site.check(request)
            name = self._known(request.path_params["action"])
            form = self._forms[name].model_validate_json(await _body(request))
            said = await self._actions[name](self._database, **dict(form))
        except HTTPException as refused:
            return _failed(refused.status_code, refused.detail)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            return _failed(400, f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": "))
        except ProjectionsError as error:
            return _failed(_status_of(error), hide_password(str(error)))
        return JSONResponse({"done": said})

    def _known(self, name: str) -> str:
        if name not in self._actions:
            there = ", ".join(self._actions)
            raise HTTPException(404, f"there is no action {name!r}; those there are: {there}")
        return name


def _status_of(error: ProjectionsError) -> int:
    if isinstance(error, NotFound) and error.code in _UNKNOWN:
        return 404
    if isinstance(error, NotAllowed | NotFound):  # it is removed, or somebody has decided about it meanwhile
        return 409
    return 403 if isinstance(error, MissingPrivilege) else 503


def _form_of(action: Action) -> type[BaseModel]:
    """What the page sends for an action: all that it takes alongside the database, and nothing else."""
    fields = {name: (kind, ...) for name, kind in get_type_hints(action, include_extras=True).items()}
    del fields["database"], fields["return"]
    return create_model("Form", __config__=ConfigDict(strict=True, extra="forbid"), **cast("Any", fields))


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MAX_BODY:
            raise HTTPException(413, f"a body is at most {_MAX_BODY} bytes")
    return bytes(body)


def _failed(status: int, reason: str) -> JSONResponse:
    return JSONResponse({"error": reason}, status)
