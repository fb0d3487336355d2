"""An empty delivery log for each test, in one database for all tests of a module."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from journal import connect
from tests.fixtures.postgres import Databases
from tests.fixtures.writable_log import WritableLog
from tests.integration.webhooks.log.log_support import EMPTY


@pytest.fixture(scope="module")
def module_dsn(databases: Databases, template: str) -> Iterator[str]:
    """A database with the schema installed, for all tests of a module."""
    with databases.fresh(template) as dsn:
        yield dsn


@pytest.fixture
async def log(module_dsn: str) -> AsyncIterator[WritableLog]:
    """An empty one."""
    async with connect(module_dsn) as database:
        async with database.session() as session:
            await session.execute(EMPTY)
        yield WritableLog(database)
