"""Operations: what the API can do. Routes and the OpenAPI document are made of them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel

from projections.webhooks.api.calls import Call, NoBody, Query

__all__ = ["Operation", "Operations"]

Handler: TypeAlias = Callable[[Call[Any, Any]], Awaitable[BaseModel | None]]

_PARAMETER = re.compile(r"{(\w+)}")


@dataclass(frozen=True, slots=True)
class Operation:
    """
    One thing that the API can do.

    Args:
        method: Of HTTP.
        path: With parameters in braces.
        handler: Does it. Its name is the operation's; the first line of its docstring says what it is.
        tag: What it belongs to.
        status: When it succeeds.
        answer: The model of its answer; None: an empty one.
        query: The model of its query.
        body: The model of its body.
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
    status: int = 200
    answer: type[BaseModel] | None = None
    query: type[Query] = Query
    body: type[BaseModel] = NoBody
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
    def summary(self) -> str:
        """In a line."""
        return (inspect.getdoc(self.handler) or "").partition("\n")[0]

    @property
    def description(self) -> str:
        """All there is to say beside the summary."""
        return (inspect.getdoc(self.handler) or "").partition("\n")[2].strip()

    @property
    def tells_version(self) -> bool:
        """Whether its answer has an ``ETag``."""
        return self.answer is not None and "version" in self.answer.model_fields

    def headers(self, answer: BaseModel) -> dict[str, str]:
        """What is sent beside an answer."""
        headers = {"etag": f'"{getattr(answer, "version")}"'} if self.tells_version else {}  # noqa: B009
        return headers | ({"location": self.location.format_map(vars(answer))} if self.location else {})

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
    """
    The operations of a module, as its handlers are declared.

    Args:
        tag: What they belong to.
    """

    def __init__(self, tag: str) -> None:
        self._tag = tag
        self._all: list[Operation] = []

    def add(self, method: str, path: str, **facts: Any) -> Callable[[Handler], Handler]:
        """
        Declare the decorated handler an operation.

        Args:
            method: Of HTTP.
            path: Its path.
            facts: The rest of :class:`Operation`.
        """

        def declare(handler: Handler) -> Handler:
            self._all.append(Operation(method, path, handler, self._tag, **facts))
            return handler

        return declare

    def __iter__(self) -> Iterator[Operation]:
        return iter(self._all)
