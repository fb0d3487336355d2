"""A check of another system's table that is cancelled says so: nothing is wrong with the mapping."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from journal import DatabaseError, connect
from journal.foreign import Constant, ForeignJournalError, TableMapping, table_log
from tests.fixtures.foreign import FOREIGN
from tests.fixtures.locks import OWN_LOCKS

_TABLE = """
CREATE TABLE log (
    source text, number bigint, at timestamptz DEFAULT now(), body jsonb, PRIMARY KEY (source, number)
)
"""
_MAPPING = TableMapping(
    table="log", source="source", number="number", position="at", bound="transaction-start",
    entity_type=Constant("plane"), event_type=Constant("Happened"), payload="body",
)  # fmt: skip
_WAITS = f"SELECT pg_cancel_backend(pid) FROM {OWN_LOCKS} WHERE NOT granted AND relation = 'log'::regclass"


@pytest.mark.parametrize("driver", FOREIGN)
async def test_a_check_that_is_cancelled_is_no_fault_of_the_mapping(empty_dsn: str, driver: str) -> None:
    other = await asyncpg.connect(empty_dsn)
    await other.execute(_TABLE)
    async with connect(empty_dsn, FOREIGN[driver]) as database:
        async with other.transaction():
            await other.execute("LOCK TABLE log")
            checking = asyncio.create_task(table_log(database, _MAPPING, name="log"))
            while not await other.fetchval(_WAITS):  # the check waits for the lock
                await asyncio.sleep(0.001)
        with pytest.raises(DatabaseError, match="canceling statement") as raised:
            await checking
        assert not isinstance(raised.value, ForeignJournalError)
        assert raised.value.sqlstate == "57014"
        assert (await table_log(database, _MAPPING, name="log")).name == "log"
    await other.close()
