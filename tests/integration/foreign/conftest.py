"""A journal of another system, as its owner writes it, and where what is read of it goes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from journal import Database, connect
from tests.fixtures.projections import EFFECTS, execute


@pytest.fixture
async def owner(request: pytest.FixtureRequest, empty_dsn: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection of the journal's owner, who has made what the module's TABLE says."""
    connection = await asyncpg.connect(empty_dsn)
    await connection.execute(request.module.TABLE)
    yield connection
    await connection.close()


@pytest.fixture
async def read_side(dsn: str) -> AsyncIterator[Database]:
    """A database of ours, for effects and offsets."""
    async with connect(dsn) as database:
        await execute(database, EFFECTS)
        yield database
