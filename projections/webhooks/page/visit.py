"""One request of a tenant's browser: what it asks of the API, and how it is answered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from secrets import token_urlsafe
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from pydantic import BaseModel
from pydantic_core import from_json

from journal import ProjectionsError
from projections.extras import from_extra
from projections.webhooks.api import Caller
from projections.webhooks.api.app import OPERATIONS
from projections.webhooks.api.calls import ApiCalls
from projections.webhooks.api.json_text import write_json
from projections.webhooks.api.operations import Call, Query
from projections.webhooks.api.problems import Problem, problem_of
from projections.webhooks.api.request_guard import request_id_of
from projections.webhooks.api.requests import check_place, read_body, read_query
from projections.webhooks.page.forms import Form
from projections.webhooks.page.rendering import Templates

with from_extra("webhooks"):
    from starlette.requests import Request
    from starlette.responses import HTMLResponse, RedirectResponse, Response

T = TypeVar("T")
_OPERATIONS = {each.handler: each for each in OPERATIONS}
_SERVER_ERROR = 500


@dataclass(frozen=True)
class Visit:
    """
    A request of a tenant's browser.

    Args:
        request: Of HTTP.
        tenant: The tenant that is signed in.
        api: Follows what is asked for.
        templates: Of the page.
        form_token: What the forms of its answer have.
        form: What was sent; empty for a page that is looked at.
    """

    request: Request
    tenant: str
    api: ApiCalls
    templates: Templates
    form_token: str
    form: Form = field(default_factory=Form)

    async def ask(
        self,
        handler: Callable[[Call[Any, Any]], Awaitable[T]],
        query: Iterable[tuple[str, str]] = (),
        body: Mapping[str, Any] | None = None,
        *,
        version: str | None = None,
        place: Mapping[str, str] | None = None,
    ) -> T:
        """
        Ask an operation of the API in the tenant's name; Problem, or the operation's error: it is refused.

        ``place`` has the values of its path; None: those of the page's own.
        """
        call = self._call(
            handler, query, body, {} if version is None else {"if-match": f'"{version}"'}, place
        )
        async with self.api.services.allowances.place(self.tenant):
            return await handler(call)

    async def ask_once(
        self, handler: Callable[[Call[Any, Any]], Awaitable[object]], body: Mapping[str, Any]
    ) -> dict[str, Any]:
        """As :meth:`ask`, once for each form that was shown: sent again, it is answered the same, as JSON."""
        if not (once := self.form.get("once", "")):
            raise Problem(
                400, "malformed_form", "the form has no field once: reload the page, and send it again"
            )
        call = self._call(handler, (), body, {"idempotency-key": f"page/{once}"}, None)
        answer = await self.api.follow(_OPERATIONS[handler], call)
        found: dict[str, Any] = from_json(answer.text or "{}")
        return found

    def _call(
        self,
        handler: Any,
        query: Iterable[tuple[str, str]],
        body: Mapping[str, Any] | None,
        headers: Mapping[str, str],
        place: Mapping[str, str] | None,
    ) -> Call[Any, Any]:
        self.api.services.allowances.ask(self.tenant)
        operation = _OPERATIONS[handler]
        asked: Query = read_query(operation, query)
        if body is None and not operation.needs_body:
            read: tuple[BaseModel, Mapping[str, Any]] = operation.body(), {}
        else:
            read = read_body(operation, write_json(body or {}).encode())
        given = self.request.path_params if place is None else place
        where = check_place({name: given[name] for name in operation.parameters})
        return Call(self.api.services, Caller(self.tenant), where, asked, read[0], read[1], headers)

    @property
    def request_id(self) -> str:
        """By which the log knows it."""
        return request_id_of(self.request.scope)

    def refused(self, error: ProjectionsError | Problem) -> Problem:
        """Why a form was refused; raises what is not the fault of who has sent it."""
        problem = problem_of(error, self.request_id)
        if problem.status >= _SERVER_ERROR:
            raise problem
        return problem

    def url(self, *path: str, **query: str | None) -> str:
        """The address of a page, whatever is in its ids."""
        given = {name: value for name, value in query.items() if value}
        where = "/".join(quote(part, safe="") for part in path)
        return f"{self.root}/{where}{'?' if given else ''}{urlencode(given)}"

    @property
    def root(self) -> str:
        """Where the page is on its host, as the browser sees it."""
        return self.templates.root or str(self.request.scope.get("root_path", ""))

    @cached_property
    def once(self) -> str:
        """By what a form that is shown now is recognised."""
        return token_urlsafe(18)

    def render(self, template: str, status: int = 200, **values: Any) -> Response:
        """Answer with a page."""
        text = self.templates.render(
            template, visit=self, root=self.root, query=self.request.query_params, **values
        )
        return HTMLResponse(text, status)

    def go(self, *path: str, said: str | None = None) -> Response:
        """Answer a form that was followed: the browser shows a page, which says what was done."""
        return RedirectResponse(self.url(*path, said=said), 303)
