"""Operations: what the API can do, and the requests that they get. Routes and the OpenAPI document are made of them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import NoneType
from typing import Annotated, Any, Generic, Literal, TypeAlias, TypeVar, get_args, get_type_hints

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field

from journal import Database, RawJson
from journal.limits import LARGEST_PAGE
from projections.interests import storable
from projections.webhooks.addresses import AddressRules
from projections.webhooks.api.authentication import Caller
from projections.webhooks.api.problems import Problem
from projections.webhooks.api.settings import ApiSettings
from projections.webhooks.api.tenant_limits import TenantLimits
from projections.webhooks.checks import LONGEST_TENANT
from projections.webhooks.deliveries import Deliveries
from projections.webhooks.egress import EgressProxy
from projections.webhooks.endpoints import Endpoints
from projections.webhooks.log import PostgresLog
from projections.webhooks.schedules import Schedules
from projections.webhooks.topics import Topic

LONGEST_WORD = 255
_PARAMETER = re.compile(r"{(\w+)}")
_ETAG = re.compile(r'(?:W/)?"([0-9]{1,9})"')  # proxies that compress make it a weak one
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = datetime(9999, 1, 1, tzinfo=UTC)


def _time(value: datetime) -> datetime:
    # Compared before it is moved to UTC: at both ends of the calendar that overflows.
    if not _FIRST <= value < _LAST:
        raise ValueError("a time is from 1970 to 9998")
    return value.astimezone(UTC)


Word = Annotated[str, Field(min_length=1, max_length=LONGEST_WORD)]
"""An id, a topic, a code: what lists are filtered by."""

Words = Annotated[tuple[Word, ...], Field(max_length=100)]

Tenant = Annotated[str, Field(min_length=1, max_length=LONGEST_TENANT)]

Time = Annotated[AwareDatetime, AfterValidator(_time)]
"""With its zone; in UTC once it is read."""


class Query(BaseModel):
    """What can be written behind the question mark. An administrator may look at some tenants alone."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    tenant: Annotated[tuple[Tenant, ...], Field(max_length=100)] = ()
    """Whose, for administrators; without it, all. A tenant may name itself alone."""


class PageQuery(Query):
    """A page of a list."""

    limit: Annotated[int, Field(ge=1, le=LARGEST_PAGE)] = 100
    next: Annotated[str, Field(max_length=LONGEST_WORD)] = ""
    """What a page said."""


class Body(BaseModel):
    """What a request brings."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


def without_defaults(schema: dict[str, Any]) -> None:
    """Of changes: what is left out stays as it is."""
    for each in schema["properties"].values():
        each.pop("default", None)


class NoBody(Body):
    """Of operations that take none; it is not read."""


class View(BaseModel):
    """What an answer has."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


T = TypeVar("T")


class ListPage(View, Generic[T]):
    """A page of a list."""

    data: tuple[T, ...]
    next: str | None
    """For the query's next: the page after it; null: this is the last. A page may be short, or empty, and have one."""


Q = TypeVar("Q", bound=Query)
B = TypeVar("B", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Services:
    """What operations are done with. All of them reach the database with its time for a statement limited."""

    database: Database
    endpoints: Endpoints
    schedules: Schedules
    deliveries: Deliveries
    log: PostgresLog
    settings: ApiSettings
    allowances: TenantLimits
    rules: AddressRules
    proxy: EgressProxy | None
    topics: tuple[str | Topic, ...]
    """Those that there are; none: whatever one asks for."""


@dataclass(frozen=True, slots=True)
class Call(Generic[Q, B]):
    """One request."""

    services: Services
    caller: Caller
    place: Mapping[str, str]
    """The values of the path's parameters."""
    query: Q
    body: B
    raw: Mapping[str, RawJson]
    """Fields of the body as they were written."""
    headers: Mapping[str, str]
    """Of the request, their names in lower case."""

    @property
    def version(self) -> int | None:
        """Which version the caller wants to change: its ``If-Match``; None: whichever there is."""
        given = self.headers.get("if-match", "*").strip()
        if given == "*":
            return None
        found = _ETAG.fullmatch(given)
        if found is None:
            raise Problem(412, "outdated_version", "if-match is * or one etag, as an answer had it")
        return int(found[1])

    def check_version(self, current: int) -> None:
        """Check that something has the version that the caller wants to change."""
        if self.version not in {None, current}:
            raise Problem(412, "outdated_version", f"it has version {current} by now: read it again")

    @property
    def key(self) -> str | None:
        """What the caller tells this request by when it asks again: its ``Idempotency-Key``; None: it has none."""
        key = self.headers.get("idempotency-key")
        if key is not None and (not 1 <= len(key) <= LONGEST_WORD or not storable(key)):
            raise Problem(
                400, "invalid_idempotency_key", f"an idempotency-key has 1 to {LONGEST_WORD} characters"
            )
        return key

    @property
    def tenants(self) -> tuple[str, ...]:
        """Whose rows are seen; none: those of all, for administrators alone."""
        return self.query.tenant if self.caller.tenant is None else (self.caller.tenant,)

    @property
    def tenant(self) -> str | None:
        """Whose things there are; None: those of all, for administrators alone, who may name one here."""
        if len(self.tenants) > 1:
            raise Problem(422, "one_tenant", "name one tenant here, or none for all of them")
        return self.tenants[0] if self.tenants else None

    def owner(self, named: str | None) -> str:
        """Whose something new is to be: an administrator has to say so, a tenant can name no other."""
        check_tenants(self.caller, () if named is None else (named,))
        owner = named or self.tenant
        if owner is None:
            raise Problem(422, "tenant_missing", "an administrator says whose it is: give the tenant")
        return owner

    def at_most(self, limit: int) -> int | None:
        """How many of a kind the caller may make, where ``limit`` is for a tenant; None: any number."""
        return None if self.caller.tenant is None else limit


def check_tenants(caller: Caller, named: tuple[str, ...]) -> None:
    """Check that a tenant names itself alone; whether another exists makes no difference."""
    if caller.tenant is not None and any(name != caller.tenant for name in named):
        raise Problem(403, "other_tenant", "the token is another tenant's than the one that is asked for")


Handler: TypeAlias = Callable[[Call[Any, Any]], Awaitable[Any]]
H = TypeVar("H", bound=Handler)


@dataclass(frozen=True, slots=True)
class Operation:
    """
    One thing that the API can do.

    Args:
        method: Of HTTP.
        path: With parameters in braces.
        handler: Does it. Its name is the operation's; the first line of its docstring says what it is.
        tag: The tag that groups it in the document.
        query: The model of its query.
        body: The model of its body.
        answer: The model or the dataclass of its answer; None: an empty one.
        status: The HTTP status of success.
        raw: Fields of the body that are kept as they were written; they may hold what PostgreSQL cannot store.
        problems: Statuses of its own problems.
        location: Where what it has made is: a path with fields of the answer in braces.
        own_key: What its handler makes of an ``Idempotency-Key`` itself; else a POST with one is followed once.
        headers_taken: Those of its own that it reads, and what they are for.
        matches: Whether a request may or must have an ``If-Match``, in which a caller names the version that it saw.
    """

    method: str
    path: str
    handler: Handler
    tag: str
    query: type[Query]
    body: type[BaseModel]
    answer: type[Any] | None
    status: int = 200
    raw: tuple[str, ...] = ()
    problems: tuple[int, ...] = ()
    location: str = ""
    own_key: str = ""
    headers_taken: Mapping[str, str] = field(default_factory=dict)
    matches: Literal["", "may", "must"] = ""

    @property
    def name(self) -> str:
        """What it is called in the OpenAPI document."""
        return self.handler.__name__

    @property
    def said(self) -> tuple[str, str]:
        """What it is in a line, and all there is to say alongside it."""
        summary, _, more = (inspect.getdoc(self.handler) or "").partition("\n")
        return summary, more.strip()

    @property
    def tells_version(self) -> bool:
        """Whether its answer has an ``ETag``."""
        fields: Any = getattr(self.answer, "__dataclass_fields__", None)
        return "version" in (fields or getattr(self.answer, "model_fields", ()))

    def headers(self, answer: Any) -> dict[str, str]:
        """What is sent alongside an answer."""
        headers = {"etag": f'"{answer.version}"'} if self.tells_version else {}
        if self.location:
            ids = {name: getattr(answer, name) for name in _PARAMETER.findall(self.location)}
            headers["location"] = self.location.format_map(ids)
        return headers

    @property
    def parameters(self) -> list[str]:
        """The path's."""
        return _PARAMETER.findall(self.path)

    @property
    def takes_body(self) -> bool:
        """Whether it reads a body."""
        return self.body is not NoBody

    @property
    def needs_body(self) -> bool:
        """Whether there must be one: without it, all fields would have to have defaults."""
        return any(each.is_required() for each in self.body.model_fields.values())


class Operations:
    """The operations of a module, as its handlers are declared."""

    def __init__(self, tag: str) -> None:
        self._tag = tag
        self._all: list[Operation] = []

    def add(self, method: str, path: str, **facts: Any) -> Callable[[H], H]:
        """Declare the decorated handler an operation: its annotations are the models of query, body and answer."""

        def declare(handler: H) -> H:
            hints = get_type_hints(handler)
            query, body = get_args(hints["call"])
            answer = None if hints["return"] is NoneType else hints["return"]
            self._all.append(Operation(method, path, handler, self._tag, query, body, answer, **facts))
            return handler

        return declare

    def __iter__(self) -> Iterator[Operation]:
        return iter(self._all)
