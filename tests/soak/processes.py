"""The processes of a soak: worker processes that come and go, one that delivers webhooks, and their memory."""

from __future__ import annotations

import asyncio
import re
from asyncio.subprocess import DEVNULL, Process
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.fixtures.commands import COMMAND, ROOT, environment

WORKER = (
    "worker", "tests.soak.app:Counts", "tests.soak.app:Seen",
    "--lease", "5s", "--max-connections", "10", "--maintain-every", "1m",
)  # fmt: skip
DELIVERER = (
    "webhooks", "deliver", "tests.soak.app:fan_out", "--allow-address", "127.0.0.0/8", "--maintain-every", "0s",
)  # fmt: skip
_PATIENCE = 1800
"""Seconds: others may take all processors of the machine for long, and a soak of hours is not to end by that."""
_FIELDS = {"Pss": "pss", "Pss_Anon": "own"}


class Started(NamedTuple):
    """A process that runs."""

    role: str
    number: int
    process: Process


class Processes:
    """
    Starts and ends what runs on a database.

    Args:
        dsn: The database.
        logs: A directory for what they say.
    """

    def __init__(self, dsn: str, logs: Path) -> None:
        self.running: list[Started] = []
        self._dsn = dsn
        self._logs = logs
        self._number = 0

    async def start(self, role: str, command: tuple[str, ...]) -> Started:
        """Start one, and wait until it logs something: from then on it ends in order."""
        self._number += 1
        path = self._logs / f"{role}-{self._number}.log"
        with path.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *COMMAND, *command, "--dsn", self._dsn, cwd=ROOT, stdin=DEVNULL, stderr=log, env=environment()
            )
        started = Started(role, self._number, process)
        self.running.append(started)
        async with asyncio.timeout(_PATIENCE):
            while process.returncode is None and not path.stat().st_size:
                await asyncio.sleep(0.05)
        return started

    async def end(self, started: Started, *, kill: bool = False) -> int:
        """End one; returns its exit code."""
        self.running.remove(started)
        with suppress(ProcessLookupError):
            (started.process.kill if kill else started.process.terminate)()
        return await asyncio.wait_for(started.process.wait(), _PATIENCE)

    async def end_all(self) -> list[int]:
        """End all in order; returns their exit codes."""
        return [await self.end(started) for started in [*self.running]]

    def kill_all(self) -> None:
        """Leave none behind."""
        for started in self.running:
            with suppress(ProcessLookupError):
                started.process.kill()

    def memory(self) -> dict[str, dict[str, float]]:
        """MB and processor seconds of each process, by role and number."""
        found = {f"{one.role} {one.number}": usage([one.process.pid]) for one in self.running}
        return {name: used for name, used in found.items() if used["pss"]}


def usage(pids: list[int]) -> dict[str, float]:
    """
    MB of memory, and processor seconds of processes; those that are gone count nothing.

    ``pss`` divides pages that are shared by those who share them; ``own`` is without files and shared memory.
    """
    found = {"processes": float(len(pids)), "pss": 0.0, "own": 0.0, "seconds": 0.0}
    for pid in pids:
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if field := _FIELDS.get(line.partition(":")[0]):
                    found[field] += int(line.split()[1]) / 1024
            times = _stat(pid)[11:13]
            found["seconds"] += sum(map(int, times)) / 100
    return {name: round(value, 2) for name, value in found.items()}


def family(pid: int) -> list[int]:
    """A process and its children."""
    found = [pid]
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(_stat(int(stat.parent.name))[1]) == pid:
                found.append(int(stat.parent.name))
    return found


def _stat(pid: int) -> list[str]:
    """The fields of ``/proc/PID/stat`` from the state on."""
    return re.split(r"\s+", Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].strip())
