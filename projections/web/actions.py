"""What the page's buttons do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

import offsets
from journal import (
    NUMBER_OF_SLICES,
    Database,
    MissingPrivilege,
    ProjectionsError,
    hide_password,
)
from projections.subscriptions import DeadBatches, NotDead, UnknownGroup, rescale_group
from projections.web.csrf import CrossSite
from projections.webhooks import Deliveries, DeliveryFilter, Endpoints, NotAllowed, NotFound

__all__ = ["Actions"]

_MAX_BODY = 8 * 1024
"""Bytes: a form has a few names."""
_STATUSES: Mapping[type[ProjectionsError], int] = {
    offsets.UnknownProjection: 404,
    UnknownGroup: 404,
    offsets.NotParked: 409,
    NotDead: 409,
    NotFound: 409,  # it is removed, or somebody has decided about it meanwhile
    NotAllowed: 409,
    MissingPrivilege: 403,
}
_RELEASE = "SELECT projections.release_condition_v1($1)"
_MOST = 2**63 - 1


_Text: TypeAlias = Annotated[str, Field(pattern=r"^[^\x00]*$")]
"""Whatever PostgreSQL can hold."""


_State: TypeAlias = Literal["active", "paused", "disabled"]


_Ranges: TypeAlias = Annotated[int, Field(ge=1, le=NUMBER_OF_SLICES)]


class _Form(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class _Body(_Form):
    projection: _Text


class _Rescale(_Body):
    ranges: _Ranges


class _RescaleGroup(_Form):
    group: _Text
    ranges: _Ranges


class _DeadLetter(_Form):
    group: _Text
    retry_id: Annotated[int, Field(ge=1, le=_MOST)]


class _Condition(_Form):
    condition_id: Annotated[int, Field(ge=1, le=2**31 - 1)]


class _Endpoint(_Form):
    endpoint: _Text


class _DeadDelivery(_Endpoint):
    event_id: _Text


class _Decide(_Body):
    source_id: _Text
    seq_nr: int
    """Of the event that was shown: if the source waits at another one by now, nothing is decided."""


_Done: TypeAlias = Callable[[Database, Any], Awaitable[str]]


async def _pause(database: Database, body: _Body) -> str:
    async with database.transaction() as session:
        await offsets.set_paused(session, body.projection, paused=True)
    return f"{body.projection} is paused after the current batches"


async def _resume(database: Database, body: _Body) -> str:
    async with database.transaction() as session:
        await offsets.set_paused(session, body.projection, paused=False)
    return f"{body.projection} goes on"


async def _rescale(database: Database, body: _Rescale) -> str:
    async with database.session() as session:
        await offsets.rescale(session, body.projection, body.ranges)
    return f"{body.projection} is cut into {body.ranges} {'range' if body.ranges == 1 else 'ranges'}"


async def _retry(database: Database, body: _Decide) -> str:
    async with database.transaction() as session:
        await offsets.ParkedSources(session).retry(body.projection, body.source_id, seq_nr=body.seq_nr)
    return f"{body.source_id} is tried again"


async def _drop(database: Database, body: _Decide) -> str:
    async with database.transaction() as session:
        await offsets.ParkedSources(session).drop(body.projection, body.source_id, seq_nr=body.seq_nr)
    return f"{body.source_id} goes on after event {body.seq_nr}"


async def _rescale_group(database: Database, body: _RescaleGroup) -> str:
    async with database.transaction() as session:
        await rescale_group(session, body.group, body.ranges)
    return f"{body.group} is cut into {body.ranges} {'range' if body.ranges == 1 else 'ranges'}"


async def _retry_batch(database: Database, body: _DeadLetter) -> str:
    async with database.transaction() as session:
        await DeadBatches(session).retry(body.group, body.retry_id)
    return f"batch {body.retry_id} of {body.group} is handled again"


async def _drop_batch(database: Database, body: _DeadLetter) -> str:
    async with database.transaction() as session:
        await DeadBatches(session).drop(body.group, body.retry_id)
    return f"batch {body.retry_id} of {body.group} is dropped"


async def _release(database: Database, body: _Condition) -> str:
    async with database.transaction() as session:
        released = await session.fetchval(_RELEASE, body.condition_id)
    if not released:
        raise HTTPException(409, f"condition {body.condition_id} is not stopped any more")
    return f"condition {body.condition_id} is asked again"


def _from(before: _State, after: _State, reason: str | None, said: str) -> _Done:
    """A change of an endpoint's state, from that which was shown."""

    async def change(database: Database, body: _Endpoint) -> str:
        await Endpoints(database).set_state(None, body.endpoint, after, reason, expected=[before])
        return f"{body.endpoint} {said}"

    return change


async def _retry_delivery(database: Database, body: _DeadDelivery) -> str:
    await Deliveries(database).retry(None, body.endpoint, body.event_id, ["dead"])
    return f"{body.event_id} is sent again"


async def _drop_delivery(database: Database, body: _DeadDelivery) -> str:
    await Deliveries(database).drop(None, body.endpoint, body.event_id, ["dead"])
    return f"{body.event_id} is dropped"


async def _retry_endpoint(database: Database, body: _Endpoint) -> str:
    which = DeliveryFilter(endpoint_id=body.endpoint)
    retried = [so_far async for so_far in Deliveries(database).retry_many(which)][-1]
    if not retried:
        raise HTTPException(
            409,
            f"none is sent again: {body.endpoint} has no dead letter whose payload is kept, or is disabled",
        )
    what = "1 delivery is" if retried == 1 else f"{retried} deliveries are"
    return f"{what} sent again to {body.endpoint}"


_ACTIONS: Mapping[str, tuple[type[_Form], _Done]] = {
    "pause": (_Body, _pause),
    "resume": (_Body, _resume),
    "rescale": (_Rescale, _rescale),
    "retry": (_Decide, _retry),
    "drop": (_Decide, _drop),
    "rescale-group": (_RescaleGroup, _rescale_group),
    "retry-batch": (_DeadLetter, _retry_batch),
    "drop-batch": (_DeadLetter, _drop_batch),
    "release": (_Condition, _release),
    "pause-endpoint": (_Endpoint, _from("active", "paused", "paused at the monitor", "is paused")),
    "resume-endpoint": (_Endpoint, _from("paused", "active", None, "goes on")),
    "enable-endpoint": (_Endpoint, _from("disabled", "active", None, "is enabled")),
    "retry-delivery": (_DeadDelivery, _retry_delivery),
    "drop-delivery": (_DeadDelivery, _drop_delivery),
    "retry-endpoint": (_Endpoint, _retry_endpoint),
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

    async def follow(self, request: Request) -> Response:
        """Do what is asked; the answer says what was done, or why not."""
        try:
            self._cross_site.check(request)
            form, action = self._found(request.path_params["action"])
            said = await action(self._database, form.model_validate_json(await _body(request)))
        except HTTPException as refused:
            return _failed(refused.status_code, refused.detail)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            return _failed(400, f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": "))
        except ProjectionsError as error:
            return _failed(_status(error), hide_password(str(error)))
        return JSONResponse({"done": said})

    @staticmethod
    def _found(name: str) -> tuple[type[_Form], _Done]:
        try:
            return _ACTIONS[name]
        except KeyError:
            raise HTTPException(
                404, f"there is no action {name!r}; those there are: {', '.join(_ACTIONS)}"
            ) from None


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MAX_BODY:
            raise HTTPException(413, f"a body is at most {_MAX_BODY} bytes")
    return bytes(body)


def _status(error: ProjectionsError) -> int:
    return next((status for kind, status in _STATUSES.items() if isinstance(error, kind)), 503)


def _failed(status: int, reason: str) -> JSONResponse:
    return JSONResponse({"error": reason}, status)
