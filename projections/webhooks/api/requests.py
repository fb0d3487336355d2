"""Reading requests: who asks, and whether path, query and body can be; nothing else is done with them here."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import chain, islice
from typing import Any, get_origin

from pydantic import BaseModel, ValidationError

from journal import RawJson
from projections.extras import from_extra
from projections.http.authentication import bearer_token
from projections.http.cross_site import foreign
from projections.interests import storable
from projections.webhooks.api.authentication import Authenticate, Caller
from projections.webhooks.api.json_text import Member, read_members
from projections.webhooks.api.operations import LONGEST_WORD, Call, Operation, Query, Services, check_tenants
from projections.webhooks.api.problems import FieldProblem, Problem, unfit

with from_extra("webhooks"):
    from starlette.requests import ClientDisconnect, Request

_CHALLENGE = {"www-authenticate": "Bearer"}
_DEEPEST = 50
_MOST_BYTES = 131_072
"""Of a body without data: ten times what an endpoint with all that it may have takes."""
# Of a body, without what is taken as it was written. A filter has up to 8,000 values; all else has far fewer.
_MOST_VALUES = 10_000
_MOST_FIELDS = 500
"""Of an object."""
_UNSTORABLE = "has the character NUL, or half of a surrogate pair"


async def read_call(
    operation: Operation, request: Request, services: Services, authenticate: Authenticate
) -> Call[Any, Any]:
    """Read a request for an operation; Problem: it cannot be followed."""
    caller = await authenticate(request)
    if caller is None:
        raise Problem(401, "unauthorized", "a token is needed: Authorization: Bearer ...", headers=_CHALLENGE)
    _check_site(request, services)
    services.allowances.ask(caller.tenant)
    if operation.matches == "must" and "if-match" not in request.headers:
        raise Problem(
            428, "version_missing", "name the version that you change: if-match with its etag, or *"
        )
    query = read_query(operation, request.query_params.multi_items())
    check_tenants(caller, query.tenant)
    body, raw = await _body(operation, request, services, caller)
    return Call(services, caller, check_place(request.path_params), query, body, raw, request.headers)


def _check_site(request: Request, services: Services) -> None:
    """Refuse what another site may have made a browser send; no browser sends a bearer token by itself."""
    if bearer_token(request.scope):
        return
    if found := foreign(request.method, request.headers, services.settings.origins):
        raise Problem(found.status, "cross_site" if found.status == 403 else "not_json", found.reason)  # noqa: PLR2004


def check_place(place: Mapping[str, str]) -> Mapping[str, str]:
    """Return the values of a path's parameters, if something can have them as ids; Problem: there is nothing."""
    for value in place.values():
        if len(value) > LONGEST_WORD or not storable(value):
            raise Problem(404, "not_found", "there is nothing with this id")
    return place


def read_query(operation: Operation, fields: Iterable[tuple[str, str]]) -> Query:
    """The query of an operation, of names and values; Problem: it cannot be."""
    given: dict[str, Any] = {}
    several = _lists(operation.query)
    for name, value in fields:
        if not storable(name) or not storable(value):
            raise _wrong_field("query", name, _UNSTORABLE)
        if name in several:
            given.setdefault(name, []).append(value)
        elif name in given:
            raise _wrong_field("query", name, "is there twice")
        else:
            given[name] = value
    try:
        return operation.query.model_validate(given)
    except ValidationError as error:
        raise unfit(error, "query") from None


@lru_cache
def _lists(model: type[BaseModel]) -> frozenset[str]:
    """Which fields may be there several times."""
    return frozenset(
        name for name, field in model.model_fields.items() if get_origin(field.annotation) is tuple
    )


async def _body(
    operation: Operation, request: Request, services: Services, caller: Caller
) -> tuple[BaseModel, Mapping[str, RawJson]]:
    if not operation.takes_body:
        return operation.body(), {}
    limit, timeout = services.settings.max_body_bytes, services.settings.body_timeout
    if not operation.raw:
        limit = min(limit, _MOST_BYTES)
    try:
        async with asyncio.timeout(timeout.total_seconds()):
            content = await read_content(request, limit)
    except TimeoutError:
        raise Problem(408, "body_too_slow", f"the body has not arrived within {timeout}") from None
    except ClientDisconnect:
        raise Problem(400, "body_cut_off", "the body ended too early") from None
    services.allowances.brought(caller.tenant, len(content))
    if not content and not operation.needs_body:
        return operation.body(), {}
    _check_type(request)
    return read_body(operation, content)


def read_body(operation: Operation, content: bytes) -> tuple[BaseModel, Mapping[str, RawJson]]:
    """The body of an operation, and its fields that stay as they were written, of JSON; Problem: it cannot be."""
    members = _members(content)
    _check_stored(members, operation.raw)
    try:
        model = operation.body.model_validate({name: each.value for name, each in members.items()})
    except ValidationError as error:
        raise unfit(error, "body") from None
    return model, {name: members[name].text for name in operation.raw if name in members}


async def read_content(request: Request, limit: int) -> bytes:
    """What a request brings, of so many bytes at most; Problem: it is more."""
    too_large = Problem(413, "body_too_large", f"a body has at most {limit} bytes")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and (len(length) > len(str(limit)) or int(length) > limit):
        raise too_large
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > limit:
            raise too_large
    return bytes(content)


def _check_type(request: Request) -> None:
    kind, _, parameters = request.headers.get("content-type", "").lower().partition(";")
    charset = parameters.replace(" ", "").replace('"', "")
    if kind.strip() != "application/json" or charset not in {"", "charset=utf-8", "charset=utf8"}:
        raise Problem(415, "not_json", "a body is application/json, in UTF-8")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Problem(415, "encoded_body", "a body is not compressed")


def _members(content: bytes) -> dict[str, Member]:
    try:
        return read_members(content.decode(), _MOST_FIELDS)
    except UnicodeDecodeError:
        reason = "it is not UTF-8"
    except ValueError as error:
        reason = str(error)[:200]
    raise Problem(400, "malformed_json", f"the body must be an object of JSON: {reason}")


def _check_stored(members: Mapping[str, Member], raw: tuple[str, ...]) -> None:
    """Stop at the first that cannot be: a model would look at everything, and say of each value what is wrong."""
    values = 0
    for name, member in members.items():
        if not storable(name):
            raise _wrong_field("body", name, _UNSTORABLE)
        if name not in raw:
            values += _checked_values(name, member.value, _MOST_VALUES - values)


def _checked_values(name: str, value: Any, most: int) -> int:
    """Level by level, without recursion: JSON may be nested as deep as Python can read."""
    values, level = 0, [(name, value)]
    for _ in range(_DEEPEST):
        inner = chain.from_iterable(_inside(path, each) for path, each in level)
        level = list(islice(inner, most - values + 1))
        values += len(level)
        if values > most:
            raise _wrong_field(
                "body", name, f"is too much: a body has at most {_MOST_VALUES:,} values alongside data"
            )
        if not level:
            return values
    raise _wrong_field("body", name, f"is nested more than {_DEEPEST} levels deep")


def _inside(path: str, value: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(value, dict):
        if len(value) > _MOST_FIELDS:
            raise _wrong_field("body", path, f"has more than {_MOST_FIELDS} fields")
        if not all(map(storable, value)):
            raise _wrong_field("body", path, _UNSTORABLE)
        return ((f"{path}.{name}", each) for name, each in value.items())
    if isinstance(value, list):
        return ((f"{path}.{place}", each) for place, each in enumerate(value))
    if isinstance(value, str) and not storable(value):
        raise _wrong_field("body", path, _UNSTORABLE)
    if isinstance(value, float) and not math.isfinite(value):
        raise _wrong_field("body", path, "is a number beyond what can be compared")
    return ()


def _wrong_field(where: str, name: str, message: str) -> Problem:
    wrong = FieldProblem(field=name[:200], message=message)
    return Problem(422, f"invalid_{where}", f"the {where} is invalid: see errors", [wrong])
