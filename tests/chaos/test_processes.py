"""A run leaves no process behind, whatever ends it: no worker, also where it is stopped, and no server."""

from __future__ import annotations

import asyncio
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.arrangements import Arrangement, inject
from tests.chaos.chaos import ROOT
from tests.chaos.projecting import TogetherChaos
from tests.fixtures.failover import Pair, Server
from tests.fixtures.processes import children


class Failing(TogetherChaos):
    """Fails with workers at work, one of them stopped, and with a standby that follows."""

    async def run(self) -> None:
        process, _ = await self._start("asyncpg"), await self._start("psycopg")
        process.send_signal(signal.SIGSTOP)
        cluster = self.read_side
        pair = Pair(cluster.server, cluster.server.beside("standby"), cluster.proxy)
        await asyncio.to_thread(pair.follow)
        assert len(children(os.getpid())) >= 3
        raise AssertionError("it fails")


@pytest.mark.slow
async def test_a_run_that_fails_ends_all_that_it_has_started(base_cluster: Server, tmp_path: Path) -> None:
    before = children(os.getpid())

    with pytest.raises(AssertionError, match="it fails"):
        await inject(
            "failing", base_cluster, tmp_path, 40, random.randrange(2**32), arrangement=Arrangement(Failing)
        )

    assert children(os.getpid()) == before


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory for all that a run makes, which tells its processes from others."""
    with tempfile.TemporaryDirectory(prefix="sp-chaos-") as path:
        Path(path).chmod(0o755)  # servers may run as another user
        yield Path(path)


def processes_of(place: Path) -> dict[int, str]:
    """Processes that were started with a directory for temporary files, or work there: their numbers and commands."""
    found = {}
    for one in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command = (one / "cmdline").read_bytes()
            if str(place).encode() in (one / "environ").read_bytes() + command:
                found[int(one.name)] = command.replace(b"\0", b" ").decode()
    return found


def started(place: Path) -> subprocess.Popen[str]:
    """A run of the command that has come to inject faults."""
    command = [sys.executable, "-m", "tests.chaos", "--faults", "100000", "--arrangement", "together"]
    environment: dict[str, Any] = {**os.environ, "TMPDIR": str(place)}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert any(line.startswith("together: ") for line in process.stderr)
    return process


@pytest.mark.slow  # what it ends is seen above, of a run that fails
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_run_that_is_told_to_end_ends_all_that_it_has_started(place: Path, how: signal.Signals) -> None:
    run = started(place)
    workers = [pid for pid, command in processes_of(place).items() if "tests.chaos.worker" in command]
    servers = [command for command in processes_of(place).values() if "/postgres" in command]
    for worker in workers:
        with suppress(ProcessLookupError):
            os.kill(worker, signal.SIGSTOP)
    run.send_signal(how)
    run.communicate(timeout=500)

    assert workers
    assert servers
    assert run.returncode not in {None, 0}
    assert processes_of(place) == {}


@pytest.mark.slow
def test_all_that_a_run_has_started_ends_with_it_when_it_is_killed(place: Path) -> None:
    run = started(place)
    servers = [pid for pid, command in processes_of(place).items() if "/postgres" in command]
    run.kill()
    run.communicate(timeout=500)

    assert servers
    while left := processes_of(place):
        for pid in left:
            with suppress(ProcessLookupError):
                ended = os.pidfd_open(pid)
                assert select.select([ended], [], [], 300)[0], left
                os.close(ended)
