"""The API as an ASGI application."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import cache
from typing import Any

from journal import Database
from projections.extras import from_extra
from projections.http.security_headers import StrictHeaders
from projections.webhooks.addresses import AddressRules
from projections.webhooks.api.authentication import Authenticate
from projections.webhooks.api.calls import ApiCalls
from projections.webhooks.api.credential_operations import credential_operations
from projections.webhooks.api.delivery_operations import delivery_operations
from projections.webhooks.api.endpoint_operations import endpoint_operations
from projections.webhooks.api.json_text import write_json
from projections.webhooks.api.log_operations import log_operations, metrics_operations
from projections.webhooks.api.message_operations import message_operations
from projections.webhooks.api.openapi import openapi_document
from projections.webhooks.api.operations import Operation
from projections.webhooks.api.problems import Problem, problem_of, problem_response
from projections.webhooks.api.request_guard import RequestGuard, request_id_of
from projections.webhooks.api.requests import read_call
from projections.webhooks.api.schedule_operations import schedule_operations
from projections.webhooks.api.settings import ApiSettings
from projections.webhooks.api.topic_operations import topic_operations
from projections.webhooks.egress import EgressProxy
from projections.webhooks.encryption import Cipher
from projections.webhooks.topics import Topic

with from_extra("webhooks"):
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.middleware import Middleware
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

OPERATIONS: Sequence[Operation] = (
    *endpoint_operations,
    *topic_operations,
    *credential_operations,
    *message_operations,
    *schedule_operations,
    *delivery_operations,
    *log_operations,
    *metrics_operations,
)
"""All that the API can do."""

_REFUSALS = {
    404: ("not_found", "there is nothing here"),
    405: ("method_not_allowed", "this cannot be done here; see the header allow"),
}


def webhooks_app(
    database: Database,
    auth: Authenticate,
    *,
    cipher: Cipher | None = None,
    rules: AddressRules | None = None,
    allow_http: bool = False,
    topics: Collection[str | Topic] | None = None,
    settings: ApiSettings | None = None,
    proxy: EgressProxy | str | None = None,
) -> Starlette:
    """
    The API: endpoints, messages, schedules, deliveries, dead letters, the delivery log and its metrics.

    It is served by itself, or mounted in another application. It sends no headers for other sites (CORS), and takes
    tokens, not cookies: what a page of another site makes a browser send is nobody's request.

    Args:
        database: Where everything is; its role needs projections_worker and projections_writer.
        auth: Tells who asks: :class:`TokenAuth`, or the application's own.
        cipher: How secrets are kept; the same as for who delivers.
        rules: Which addresses endpoints may be at, and challenges go to; the same as for who delivers.
        allow_http: Let endpoints without TLS through, too.
        topics: Those that there are, by name or as :class:`Topic` with its schema and examples: an endpoint that asks
            for another one is refused. None: whatever one asks for.
        settings: Limits of sizes, times and tenants; None: the defaults.
        proxy: Challenges go through it, as for :class:`~projections.webhooks.HttpSender`; None: that of
            ``PROJECTIONS_WEBHOOK_PROXY``, or else directly.
    """
    settings = settings or ApiSettings()
    calls = ApiCalls(
        database, settings, cipher=cipher, rules=rules, allow_http=allow_http, topics=topics, proxy=proxy
    )
    app = Starlette(
        routes=[*_routes(calls, auth), Route("/openapi.json", _openapi), Route("/", _index)],
        middleware=[Middleware(StrictHeaders), Middleware(RequestGuard, settings=settings)],
        exception_handlers={HTTPException: _refused},
    )
    app.router.redirect_slashes = False
    return app


def _routes(calls: ApiCalls, auth: Authenticate) -> Iterable[Route]:
    """One for each path, so that a method that it has not is answered with those that it has."""
    by_path: dict[str, dict[str, Operation]] = {}
    for operation in OPERATIONS:
        by_path.setdefault(operation.path, {})[operation.method] = operation
    # What is literal goes before a parameter that would take it.
    for path in sorted(by_path, key=lambda path: path.replace("{", "\x7f")):
        methods = by_path[path]
        yield Route(path, _follower(calls, auth, methods), methods=list(methods), name=path)


def _follower(
    calls: ApiCalls, auth: Authenticate, methods: dict[str, Operation]
) -> Callable[[Request], Awaitable[Response]]:
    async def follow(request: Request) -> Response:
        operation = methods["GET" if request.method == "HEAD" else request.method]
        try:
            call = await read_call(operation, request, calls.services, auth)
            answer = await calls.follow(operation, call)
        except Exception as error:  # noqa: BLE001 - each becomes an answer, and what is not foreseen is logged
            request_id = request_id_of(request.scope)
            return problem_response(problem_of(error, request_id), request_id)
        if answer.text is None:
            return Response(status_code=operation.status)
        headers = dict(answer.headers)
        if "location" in headers:
            headers["location"] = request.scope.get("root_path", "") + headers["location"]
        return Response(answer.text, operation.status, headers, media_type="application/json")

    return follow


async def _index(request: Request) -> Response:
    here = request.scope.get("root_path", "")
    return _json({"title": "Webhooks", "openapi": f"{here}/openapi.json"})


@cache
def _document() -> dict[str, Any]:
    """Made when it is first asked for: that takes longer than all the rest of a start."""
    return openapi_document(OPERATIONS)


async def _openapi(request: Request) -> Response:
    return _json({**_document(), "servers": [{"url": request.scope.get("root_path", "") or "/"}]})


async def _refused(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 500)
    code, detail = _REFUSALS.get(status, ("refused", "the request cannot be followed"))
    problem = Problem(status, code, detail, headers=getattr(error, "headers", None))
    return problem_response(problem, request_id_of(request.scope))


def _json(value: Any) -> Response:
    return Response(write_json(value), media_type="application/json")
