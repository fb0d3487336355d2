"""Taking over offsets at its limits: a million of them, two at once, a journal that goes away."""

from __future__ import annotations

import asyncio
import tracemalloc

import pytest

from journal import JournalUnavailable, slice_of
from offsets import MoveRefused
from tests.fixtures.locks import OWN_LOCKS
from tests.fixtures.moving import take_over
from tests.fixtures.projections import fetchval
from tests.integration.foreign.test_moving_over import AKKA, Accounts, akka, at

_EVENTS = """
INSERT INTO event_journal (
    slice, entity_type, persistence_id, seq_nr, db_timestamp, event_ser_id, event_ser_manifest, event_payload, writer
) SELECT s.slice, 'account', s.id, 1, $1::timestamptz + s.n * interval '1 microsecond', 31, 'x', '{}', ''
FROM unnest($2::text[], $3::int[]) WITH ORDINALITY AS s (id, slice, n)
"""
_OFFSETS = """
INSERT INTO akka_projection_timestamp_offset_store
SELECT 'accounts', '0-1023', slice, persistence_id, 1, db_timestamp, now() FROM event_journal
"""
_MANY = 1_000_000


@pytest.mark.slow
@pytest.mark.timeout(3600)
async def test_many_offsets_are_taken_over_in_bounded_memory(empty_dsn: str, dsn: str) -> None:
    async with akka(empty_dsn, dsn) as (there, log, read_side):
        for first in range(0, _MANY, 50_000):
            names = [f"account|{n}" for n in range(first, first + 50_000)]
            await there.connection.execute(
                _EVENTS, at(first / 50_000), names, [slice_of(name) for name in names]
            )
        await there.connection.execute(_OFFSETS)
        told: list[int] = []
        tracemalloc.start()
        began = asyncio.get_running_loop().time()
        moved = await take_over(read_side, log, Accounts, AKKA, progress=told.append)
        took = asyncio.get_running_loop().time() - began
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        print(f"{moved.sources} offsets in {took:.1f} s, {most >> 20} MiB")
        assert moved.sources == told[-1] == _MANY
        assert len(told) >= _MANY / 20_000
        assert most < 100 << 20


async def test_of_two_that_take_over_at_once_one_is_refused(empty_dsn: str, dsn: str) -> None:
    async with akka(empty_dsn, dsn) as (there, log, read_side):
        for name in ("account|a", "account|b"):
            await there.persist(name, at(0))
            await there.handled(name, 1, at(0))
        both = await asyncio.gather(
            *(take_over(read_side, log, Accounts, AKKA) for _ in range(2)), return_exceptions=True
        )
        refused = [one for one in both if isinstance(one, MoveRefused)]
        assert len(refused) == 1, both
        assert "has begun already" in str(refused[0])
        assert await fetchval(read_side, "SELECT count(*) FROM projections.source_offsets") == 2


async def test_a_journal_that_goes_away_meanwhile_leaves_nothing_stored(empty_dsn: str, dsn: str) -> None:
    async with akka(empty_dsn, dsn) as (there, log, read_side):
        await there.persist("account|a", at(0))
        await there.handled("account|a", 1, at(0))
        lock = there.connection.transaction()
        await lock.start()
        await there.connection.execute("LOCK TABLE event_journal IN ACCESS EXCLUSIVE MODE")
        moving = asyncio.create_task(take_over(read_side, log, Accounts, AKKA))
        waiting = f"SELECT pid FROM {OWN_LOCKS} WHERE relation = 'event_journal'::regclass AND NOT granted"
        async with asyncio.timeout(300):
            while (pid := await there.connection.fetchval(waiting)) is None:
                await asyncio.sleep(0.001)
        await there.connection.execute("SELECT pg_terminate_backend($1)", pid)
        with pytest.raises(JournalUnavailable, match="journal 'bank': "):
            await moving
        await lock.rollback()
        assert await fetchval(read_side, "SELECT count(*) FROM projections.source_offsets") == 0
        assert await fetchval(read_side, "SELECT count(*) FROM projections.projections") == 0
        assert (await take_over(read_side, log, Accounts, AKKA)).sources == 1
