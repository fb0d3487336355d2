"""The OpenAPI document: true of what the application does, and asked of it with what a machine thinks up."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from journal import Database, connect
from projections.webhooks.api.app import OPERATIONS
from projections.webhooks.api.openapi import openapi_document
from projections.webhooks.api.operations import Operation
from tests.fixtures.webhooks_api import ADMIN, BODIES, QUERIES, Api, Rows, application, rows_of

T = TypeVar("T")

CHECKS = [
    schemathesis.checks.not_a_server_error,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
]
SCHEMA = schemathesis.openapi.from_dict(openapi_document(OPERATIONS))


@dataclass
class Served:
    """An application in a loop of its own: what thinks up requests is not asynchronous."""

    loop: asyncio.AbstractEventLoop
    stack: AsyncExitStack
    database: Database = field(init=False)
    client: httpx.AsyncClient = field(init=False)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30)


@pytest.fixture(scope="module")
def served(databases: Any, template: str) -> Iterator[Served]:
    with asyncio.Runner() as runner, databases.fresh(template) as dsn:
        loop, stack = runner.get_loop(), AsyncExitStack()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        served = Served(loop, stack)
        try:
            served.database = served.run(stack.enter_async_context(connect(dsn)))
            served.client = served.run(
                stack.enter_async_context(Api(application(served.database), ADMIN).client)
            )
            yield served
        finally:
            served.run(stack.aclose())
            loop.call_soon_threadsafe(loop.stop)
            thread.join()


_tenants = (f"tenant-{number}" for number in itertools.count())


@pytest.mark.daily(2)
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.name)
def test_no_request_of_the_document_makes_the_server_fail_or_break_it(
    operation: Operation, served: Served
) -> None:
    _ask(operation, served, settings(max_examples=5, derandomize=True))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.name)
def test_no_request_of_the_document_makes_the_server_fail_however_many_are_tried(
    operation: Operation, served: Served
) -> None:
    _ask(operation, served, settings(max_examples=400))


def _ask(operation: Operation, served: Served, much: settings) -> None:
    """Ask for what is there, and for what is not, with requests that fit the document and requests that do not."""
    rows = served.run(rows_of(served.database, next(_tenants)))
    described = SCHEMA[operation.path][operation.method]
    modes = [described.as_strategy(generation_mode=mode) for mode in schemathesis.GenerationMode]

    @settings(much, database=None, suppress_health_check=list(HealthCheck))
    @given(case=st.one_of(modes), there=st.booleans())
    def ask(case: schemathesis.Case, *, there: bool) -> None:
        if there:
            _make_fit(case, operation, rows)
        try:
            response = served.run(_sent(served.client, case))
        except httpx.InvalidURL:  # too long for the client
            reject()
        case.validate_response(response, checks=CHECKS)

    ask()


def _make_fit(case: schemathesis.Case, operation: Operation, rows: Rows) -> None:
    """Give it what has to be there and what documents cannot say, such as which URLs an endpoint may have."""
    case.path_parameters = {name: rows.place[name] for name in operation.parameters}
    if isinstance(case.body, dict) and operation.name in BODIES:
        case.body = case.body | BODIES[operation.name]
        case.body |= {"tenant": rows.tenant} if "tenant" in operation.body.model_fields else {}
    case.query = (case.query or {}) | QUERIES.get(operation.name, {})


async def _sent(client: httpx.AsyncClient, case: schemathesis.Case) -> httpx.Response:
    prepared = requests.Request(**case.as_transport_kwargs(base_url=str(client.base_url))).prepare()
    headers = {name: value for name, value in prepared.headers.items() if name.lower() != "authorization"}
    return await client.request(prepared.method, prepared.url, headers=headers, content=prepared.body)
