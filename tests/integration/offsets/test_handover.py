"""Processes that end, are killed, are stopped or have a wrong clock: their ranges move on, in time and safely."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from journal import ConnectionSettings, Database, connect
from tests.fixtures.locks import WAITING
from tests.fixtures.projections import fetchval, until
from tests.fixtures.workers import (
    appending,
    claimed_after,
    prepare,
    said,
    seen_once,
    send,
    shared_by,
    slowest,
    worker,
)

FAKETIME = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
SHIFTED = """
import os, time
shift, real = float(os.environ["SHIFT_HOURS"]) * 3600, time.time
time.time = lambda: real() + shift
"""


@pytest.fixture
async def journal(dsn: str, tmp_path: Path) -> AsyncIterator[Database]:
    async with connect(dsn, ConnectionSettings(max_connections=5)) as pool:
        await prepare(pool, tmp_path)
        yield pool


def shifted_clock(directory: Path, hours: int) -> dict[str, str]:
    """Environment of a process whose clock is wrong, all but the monotonic one."""
    if FAKETIME:
        return {
            "LD_PRELOAD": str(FAKETIME[0]), "FAKETIME": f"{hours:+}h", "FAKETIME_DONT_FAKE_MONOTONIC": "1"
        }  # fmt: skip
    (directory / "sitecustomize.py").write_text(SHIFTED)
    return {"PYTHONPATH": f"{directory}:{Path(__file__).parents[3]}", "SHIFT_HOURS": str(hours)}


BUSY = 60.0
"""Seconds, for a machine that has much else to do: how quick it is otherwise is measured with ``-m slow``."""


@pytest.mark.parametrize("within", [BUSY, pytest.param(1.0, marks=pytest.mark.slow)])
async def test_a_clean_stop_hands_over_at_once(
    journal: Database, dsn: str, tmp_path: Path, within: float
) -> None:
    lease = ("--lease", "1h")
    async with worker(dsn, tmp_path, *lease) as first, worker(dsn, tmp_path, *lease):
        await shared_by(journal, 2)
        async with appending(journal):
            await until(journal, "SELECT count(DISTINCT pid) = 2 FROM seen")
            stopped_at = await send(journal, first, signal.SIGTERM)
            await shared_by(journal, 1)
            claimed = await claimed_after(journal, stopped_at)
            later = "SELECT max(seen_at) > $1::timestamptz + INTERVAL '1 s' FROM seen"
            await until(journal, later, stopped_at)
            longest = await slowest(journal, stopped_at)
        await seen_once(journal)
        assert await first.wait() == 0

    assert len(claimed) == 4
    assert max(claimed) < within
    assert longest < within + 0.5


@pytest.mark.slow
@pytest.mark.parametrize("within", [BUSY, pytest.param(1.0, marks=pytest.mark.slow)])
async def test_a_killed_worker_is_followed_when_its_lease_ends(
    journal: Database, dsn: str, tmp_path: Path, within: float
) -> None:
    lease = ("--lease", "2s")
    async with worker(dsn, tmp_path, *lease) as first, worker(dsn, tmp_path, *lease), appending(journal):
        await shared_by(journal, 2)
        killed_at = await send(journal, first, signal.SIGKILL)
        await shared_by(journal, 1)
        claimed = await claimed_after(journal, killed_at)
        await seen_once(journal)

    assert len(claimed) == 4
    assert max(claimed) < 2 + within
    assert sum("taken over from" in line for line in said(tmp_path)) == 4


@pytest.mark.slow
async def test_a_stopped_worker_that_goes_on_commits_nothing_and_gets_its_share_again(
    journal: Database, dsn: str, tmp_path: Path
) -> None:
    """It is stopped in the middle of a batch, whose last statement is answered when it has lost its ranges."""
    lease = ("--lease", "1s")
    async with worker(dsn, tmp_path, *lease) as first, worker(dsn, tmp_path, *lease):
        await shared_by(journal, 2)
        async with journal.session() as holder:
            await holder.fetchval("SELECT pg_advisory_lock($1)", first.pid)
            held_up_at = await holder.fetchval("SELECT clock_timestamp()")
            async with appending(journal):
                waits = f"SELECT count(*) > 0 FROM {WAITING} WHERE locktype = 'advisory'"
                await until(journal, waits)
                first.send_signal(signal.SIGSTOP)
                await shared_by(journal, 1)
            await holder.fetchval("SELECT pg_advisory_unlock($1)", first.pid)
            went_on_at = await send(journal, first, signal.SIGCONT)
        await shared_by(journal, 2)
        async with appending(journal):
            await until(
                journal,
                "SELECT count(*) > 0 FROM seen WHERE pid = $1 AND seen_at > $2",
                first.pid,
                went_on_at,
            )
        await seen_once(journal)

    before = "SELECT count(*) FROM seen WHERE pid = $1 AND seen_at BETWEEN $2 AND $3"
    assert await fetchval(journal, before, first.pid, held_up_at, went_on_at) == 0


@pytest.mark.slow
@pytest.mark.parametrize("hours", [pytest.param(5, marks=pytest.mark.slow), -5])
async def test_a_clock_that_is_wrong_by_hours_does_no_harm(
    journal: Database, dsn: str, tmp_path: Path, hours: int
) -> None:
    lease = ("--lease", "2s")
    wrong = shifted_clock(tmp_path, hours)
    async with worker(dsn, tmp_path, *lease, **wrong) as first, worker(dsn, tmp_path, *lease):
        async with appending(journal):
            await shared_by(journal, 2)
            longest = await fetchval(
                journal, "SELECT extract(epoch FROM max(lease_until) - now()) FROM projections.workers"
            )
            killed_at = await send(journal, first, signal.SIGKILL)
            await shared_by(journal, 1)
            claimed = await claimed_after(journal, killed_at)
        await seen_once(journal)

    assert longest <= 2
    assert len(claimed) == 4
    assert 1 < max(claimed) < 3


@pytest.mark.slow
async def test_a_process_with_a_wrong_clock_follows_a_killed_one(
    journal: Database, dsn: str, tmp_path: Path
) -> None:
    lease = ("--lease", "2s")
    wrong = shifted_clock(tmp_path, 5)
    async with worker(dsn, tmp_path, *lease) as first, worker(dsn, tmp_path, *lease, **wrong):
        async with appending(journal):
            await shared_by(journal, 2)
            killed_at = await send(journal, first, signal.SIGKILL)
            await shared_by(journal, 1)
            claimed = await claimed_after(journal, killed_at)
        await seen_once(journal)

    assert 1 < max(claimed) < 3


@pytest.mark.slow
async def test_a_clean_stop_leaves_neither_an_owner_nor_a_worker(
    journal: Database, dsn: str, tmp_path: Path
) -> None:
    async with worker(dsn, tmp_path) as only:
        await shared_by(journal, 1)
        await send(journal, only, signal.SIGTERM)
        assert await only.wait() == 0

    left = (
        "SELECT count(owner) + (SELECT count(*) FROM projections.workers) FROM projections.projection_ranges"
    )
    assert await fetchval(journal, left) == 0
