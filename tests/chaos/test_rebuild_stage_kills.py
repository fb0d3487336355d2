"""A process that rebuilds is killed at named points of its combining, verifying and swapping."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from signal import SIGKILL

import pytest

from journal import ConnectionSettings, Database, connect
from spark_projections.rebuilds.options import RebuildOptions
from spark_projections.rebuilds.rebuilding import rebuild
from tests.fixtures.commands import environment
from tests.fixtures.projections import execute, fetchval, until
from tests.fixtures.rebuilds import (
    ADVISORY_LOCKS,
    AllKinds,
    Changed,
    append_changes,
    fence_passes,
    in_this_process,
    make_read_models,
    plain_fold,
    schemas,
    tables_of_all_kinds,
)

__all__ = ["in_this_process"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.usefixtures("in_this_process")]

POINTS = {
    "combine begins": ("CREATE TABLE .*_last", 0),
    "a table is combined": ("INSERT INTO .*GROUP BY", 0),
    "all is combined": ("commit", 0),
    "combined": ("commit", 1),
    "keys are copied": ("_copy_foreign_keys_v1", 0),
    "keys are validated": ("_validate_foreign_keys_v1", 1),
    "verified": ("state = 'verified'", 0),
    "verified, not committed": ("state = 'verified'", 1),
    "verified and committed": ("state = 'verified'", 2),
    "swap": ("_swap_rebuild_v1", 0),
    "swapped, not committed": ("_swap_rebuild_v1", 1),
    "swapped and committed": ("_swap_rebuild_v1", 2),
}
"""The statement, of those after all is folded, that is looked for, and how many later the process is killed."""
DRIVER = """
import asyncio, os, re, signal, sys
from journal import connect
from journal.database.asyncpg import AsyncpgSession
from spark_projections.rebuilds import rebuilding
from spark_projections.rebuilds.options import RebuildOptions
from tests.fixtures.rebuilds import AllKinds

dsn, pattern, later, in_place = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "True"
folded, left = False, None

def dying(call):
    async def counted(self, *args, **options):
        global left
        if left is None and folded and re.search(pattern, str(args), re.DOTALL | re.IGNORECASE):
            left = later
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left = None if left is None else left - 1
        return await call(self, *args, **options)
    return counted

async def noted(run, name, work, stage=rebuilding._Run._stage):
    global folded
    folded = folded or name == "combine"
    return await stage(run, name, work)

rebuilding._Run._stage = noted
for name in ("_call", "_control"):
    setattr(AsyncpgSession, name, dying(getattr(AsyncpgSession, name)))

async def main():
    async with connect(dsn) as database:
        await rebuilding.rebuild(database, dsn, AllKinds, RebuildOptions(splits=1, in_place=in_place))

asyncio.run(main())
"""
EVENTS = [(f"s{n % 5}", Changed(key=f"k{n % 3}", n=n)) for n in range(10)]


@pytest.fixture
async def journal(dsn: str) -> AsyncIterator[Database]:
    async with connect(dsn, ConnectionSettings(max_connections=15)) as pool:
        await make_read_models(pool)
        yield pool


@pytest.mark.parametrize(
    ("point", "in_place"),
    [*((point, False) for point in POINTS), *((point, True) for point in [*POINTS][-3:])],
)
async def test_what_serves_is_the_old_or_the_new_wherever_it_is_killed(
    journal: Database, dsn: str, point: str, in_place: bool
) -> None:
    await append_changes(journal, EVENTS)
    await execute(journal, "INSERT INTO totals (key, n) VALUES ('k0', 7), ('of older code', 1)")
    await fence_passes(journal)
    before, right = await tables_of_all_kinds(journal), plain_fold(EVENTS)
    pattern, later = POINTS[point]

    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", DRIVER, dsn, pattern, str(later), str(in_place), env=environment(), stderr=PIPE
    )
    _, err = await process.communicate()
    assert process.returncode == -SIGKILL, err.decode()[-3000:]
    await until(journal, f"SELECT count(*) = 0 FROM {ADVISORY_LOCKS}")

    swapped = point == "swapped and committed"
    assert await tables_of_all_kinds(journal) == (right if swapped else before)
    result = await rebuild(journal, dsn, AllKinds, RebuildOptions(splits=1, in_place=in_place))
    assert result.resumed != swapped
    assert await tables_of_all_kinds(journal) == right
    assert await fetchval(journal, "SELECT count(*) FROM projections.rebuilds WHERE state <> 'swapped'") == 0
    assert not [name for name in await schemas(journal) if name.startswith("projections_rebuild")]
