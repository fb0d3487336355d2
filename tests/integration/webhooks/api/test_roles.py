"""What the login of the application has to be: a worker that may append, and no more."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from journal import Database, connect
from projections.webhooks.api.app import OPERATIONS
from projections.webhooks.api.operations import Operation
from tests.fixtures.webhooks_api import BODIES, QUERIES, TOKENS, Api, Rows, application, filled


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.name)
async def test_a_worker_that_may_append_may_do_all_that_the_api_does(
    operation: Operation, acmes: Rows, login: Callable[[str | None], str]
) -> None:
    async with connect(login("projections_worker, projections_writer")) as own:
        api = Api(application(own), TOKENS["acme"])
        async with api.client:
            await api(
                operation.method, filled(operation, acmes), BODIES.get(operation.name), status=operation.status,
                params=QUERIES.get(operation.name),
            )  # fmt: skip


async def test_a_grant_that_is_missing_is_no_fault_of_who_asks_and_is_not_described_to_them(
    database: Database, login: Callable[[str | None], str]
) -> None:
    async with connect(login(None)) as own:
        api = Api(application(own), TOKENS["acme"])
        async with api.client:
            response = await api("GET", "/v1/endpoints", status=500)
    assert response.json()["code"] == "internal_error"
    assert "grant" not in response.text
