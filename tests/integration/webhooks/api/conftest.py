"""The API over a fresh database, with rows of two tenants."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from journal import Database
from tests.fixtures.webhooks_api import ADMIN, TOKENS, Api, Rows, Unasked, application, rows_of


@pytest.fixture
def app(database: Database) -> Any:
    return application(database)


@pytest.fixture
async def unasked() -> AsyncIterator[Api]:
    """A tenant that asks an application without a database: what that refuses, it refuses before it looks there."""
    api = Api(application(cast("Database", Unasked())), TOKENS["globex"])
    async with api.client:
        yield api


@pytest.fixture
async def admin(app: Any) -> AsyncIterator[Api]:
    api = Api(app, ADMIN)
    async with api.client:
        yield api


@pytest.fixture
async def acme(app: Any) -> AsyncIterator[Api]:
    api = Api(app, TOKENS["acme"])
    async with api.client:
        yield api


@pytest.fixture
async def globex(app: Any) -> AsyncIterator[Api]:
    api = Api(app, TOKENS["globex"])
    async with api.client:
        yield api


@pytest.fixture
async def nobody(app: Any) -> AsyncIterator[Api]:
    api = Api(app, None)
    async with api.client:
        yield api


@pytest.fixture
async def acmes(database: Database) -> Rows:
    return await rows_of(database, "acme")


@pytest.fixture
async def globexes(database: Database) -> Rows:
    return await rows_of(database, "globex")
