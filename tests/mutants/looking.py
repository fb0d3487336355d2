"""Layers that look for seeded bugs, several at a time, and a file of what they found, by which a run goes on."""

from __future__ import annotations

import hashlib
import json
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fixtures.processes import end_running
from tests.models.spin import Unfinished
from tests.mutants.layers import ROOT, Broken, Pytest, Simulation, Spin
from tests.mutants.mutant import Layer, Mutant


@dataclass(frozen=True, slots=True)
class Job:
    """
    A layer that looks for a bug.

    Args:
        mutant: The bug; None for tests that must pass without one.
        layer: Who looks.
    """

    mutant: Mutant | None
    layer: Layer

    @property
    def name(self) -> str:
        return self.mutant.name if self.mutant else "without a bug"

    @property
    def key(self) -> str:
        """Tells it from the others of the catalogue."""
        return f"{self.name}: {self.layer!r}"

    def look(self, server: str) -> Look:
        """Look on this server."""
        began, found, broken = time.monotonic(), None, None
        try:
            if self.mutant is not None:
                found = self.layer.find(self.mutant, server)
            elif isinstance(self.layer, Pytest):
                found = self.layer.failed(server)
        except (Broken, Unfinished) as error:
            broken = str(error)
        return Look(self, found, time.monotonic() - began, broken)


@dataclass(frozen=True, slots=True)
class Look:
    """
    A job that is done.

    Args:
        job: Which one.
        found: What showed the bug, or failed without one.
        seconds: How long it took.
        broken: Why it tells nothing.
    """

    job: Job
    found: str | None
    seconds: float
    broken: str | None = None

    def __str__(self) -> str:
        if self.broken is not None:
            what = f"CANNOT TELL: {self.broken}"
        elif self.job.mutant is None:
            what = f"FAILS: {self.found}" if self.found else "passes"
        else:
            what = f"found: {self.found}" if self.found is not None else "NOT FOUND"
        return f"{self.job.name}, {self.job.layer.name}: {what} ({self.seconds:.1f} s)"


def without_a_bug(layers: Iterable[Layer], processes: int) -> list[Job]:
    """The tests of these layers, in as many parts as processes: what fails without a bug says nothing about any."""
    nodes = list(dict.fromkeys(node for layer in layers if isinstance(layer, Pytest) for node in layer.nodes))
    return [Job(None, Pytest(*part)) for n in range(processes) if (part := nodes[n::processes])]


def in_order(jobs: Iterable[Job]) -> list[Job]:
    """What takes longest first, so that no processor waits for it at the end."""
    return sorted(jobs, key=_rank)


def _rank(job: Job) -> int:
    if job.mutant is None:
        return 0
    return {Simulation: 1, Pytest: 2, Spin: 3}.get(type(job.layer), 0)


def look(jobs: Sequence[Job], server: str, processes: int) -> Iterator[Look]:
    """Look, so many at a time; where the caller goes on no more, all that runs is ended."""
    with ThreadPoolExecutor(processes) as pool:
        running = [pool.submit(job.look, server) for job in jobs]
        try:
            for ended in as_completed(running):
                yield ended.result()
        finally:
            _end(pool, running)


def _end(pool: ThreadPoolExecutor, running: list[Future[Look]]) -> None:
    pool.shutdown(wait=False, cancel_futures=True)
    while busy := [one for one in running if one.running()]:
        end_running()
        wait(busy, timeout=1)  # one may have been about to begin


class Records:
    """
    A file with a line for each look, with the state of the code that it was about.

    Args:
        path: The file; None to keep nothing.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._state = state_of_the_code() if path else {}

    def done(self, jobs: Iterable[Job]) -> list[Look]:
        """Those of these jobs that were done on the code as it is now."""
        kept = {one["key"]: one for one in self._lines() if one["state"] == self._state}
        return [
            Look(job, line["found"], line["seconds"])
            for job in jobs
            if (line := kept.get(job.key)) is not None
        ]

    def add(self, one: Look) -> None:
        """Keep a look, unless it tells nothing."""
        if self._path is None or one.broken is not None:
            return
        kept = {
            "key": one.job.key,
            "found": one.found,
            "seconds": round(one.seconds, 1),
            "state": self._state,
        }
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(kept) + "\n")

    def _lines(self) -> Iterator[dict[str, Any]]:
        text = self._path.read_text(encoding="utf-8") if self._path and self._path.exists() else ""
        whole, _, rest = text.rpartition("\n")
        if rest and self._path:  # it was killed as it wrote
            self._path.write_text(whole + "\n" if whole else "", encoding="utf-8")
        yield from map(json.loads, whole.splitlines())


def state_of_the_code() -> dict[str, str]:
    """The commit, and a digest of what differs from it in the working tree."""
    digest = hashlib.sha256(_git("diff", "HEAD"))
    for name in _git("ls-files", "--others", "--exclude-standard", "-z").split(b"\0")[:-1]:
        digest.update(name + b"\0" + (ROOT / name.decode()).read_bytes())
    return {"commit": _git("rev-parse", "HEAD").decode().strip(), "changes": digest.hexdigest()}


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True).stdout
