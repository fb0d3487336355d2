"""Spin and a C compiler: explore a model at a scope, or find the shortest schedule in which a mutant goes wrong."""

from __future__ import annotations

import re
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.fixtures.processes import run
from tests.models.catalogue import FOLDER, Model, Scope

MEGABYTES = 3000
"""What one exploration may take of the memory."""
SECONDS = 3600
_OPTIONS = ("-w", "-DVECTORSZ=2048")
_SAFE = ("-DSAFETY", "-DNOFAIR")
"""Of a scope in which nothing wrong is to happen."""
_LIVE = ("-DNFAIR=5",)
"""Of a scope in which something is to happen in the end, where each process that can go on does."""
_DEPTH = 2_000_000


class Missing(Exception):
    """Spin, or a C compiler, is not installed; the message says how to get it."""


class Unfinished(Exception):
    """An exploration has not come to its end: it says nothing."""


@dataclass(frozen=True, slots=True)
class Explored:
    """
    What an exploration has found.

    Args:
        states: Different states that were reached.
        errors: 1 when the promise is broken in one of them, else 0.
        why: What Spin says of that.
        seconds: How long it took, with compiling.
    """

    states: int
    errors: int
    why: str
    seconds: float


def missing() -> str | None:
    """What is not installed, and how to get it; None when all is there."""
    if shutil.which("spin") is None:
        return "spin is not installed: apt-get install spin"
    if _compiler() is None:
        return "a C compiler is not installed: apt-get install gcc"
    return None


def _compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc")


def explore(model: Model, scope: Scope, *, large: bool = False) -> Explored:
    """
    Explore a model completely, or up to the first error.

    Args:
        model: The model.
        scope: How large it is.
        large: Whether it may take long: then it is compiled to be quick.

    Raises:
        Missing: Spin or a compiler is not there.
        Unfinished: Memory, depth or time was not enough, or the model is not valid.
    """
    began = time.monotonic()
    with _folder(model) as folder:
        mutant = bool(scope.wrong)
        _compile(folder, model, scope, "-O0" if mutant else "-O2", *(["-DCOLLAPSE"] if large else []))
        told = _run(["./pan", *_asked(scope), f"-m{_DEPTH}", "-w18" if mutant else "-w22"], folder)
    return _read(told, time.monotonic() - began)


def shortest(model: Model, scope: Scope) -> list[str]:
    """
    The steps of the shortest schedule in which the promise is broken; the last one says how.

    Of one that is never kept, a schedule that ends in a circle, not the shortest.

    Raises:
        LookupError: It is never broken.
        Missing: Spin or a compiler is not there.
        Unfinished: As for :func:`explore`.
    """
    with _folder(model) as folder:
        _compile(folder, model, scope, "-O1", *([] if _is_live(scope) else ["-DBFS"]))
        found = _read(_run(["./pan", *_asked(scope), f"-m{_DEPTH}", "-w22"], folder), 0)
        if not found.errors:
            raise LookupError(f"{model.name}, {scope.name}: the promise is never broken")
        told = _run(["spin", *_defines(scope), "-t", "-T", model.path.name], folder)
    steps = [line.strip() for line in told.splitlines()]
    steps = [line for line in steps if not line.startswith("Never claim")]
    last = next((i for i, line in enumerate(steps) if line.startswith(("spin:", "#processes"))), len(steps))
    return [*steps[:last], f"broken: {found.why}"]


def printed(model: Model, scope: Scope) -> Iterator[str]:
    """
    What a model prints while it is explored completely, with what ``OBSERVED`` adds; in the order of the search.

    Raises:
        Missing: Spin or a compiler is not there.
        Unfinished: As for :func:`explore`.
    """
    with _folder(model) as folder:
        _compile(folder, model, replace(scope, sizes=(*scope.sizes, "OBSERVED")), "-O1", "-DPRINTF")
        told = _run(["./pan", f"-m{_DEPTH}"], folder)
    _read(told[told.rindex("(Spin Version") :], 0)
    yield from told.splitlines()


@contextmanager
def _folder(model: Model) -> Iterator[Path]:
    if (why := missing()) is not None:
        raise Missing(why)
    with tempfile.TemporaryDirectory(prefix="model-") as name:
        folder = Path(name)
        for path in [model.path, *FOLDER.glob("*.inc")]:
            shutil.copy(path, folder)
        yield folder


def _defines(scope: Scope) -> list[str]:
    return [f"-D{size}" for size in scope.sizes] + ([f"-DMUTANT_{scope.name}"] if scope.wrong else [])


def _is_live(scope: Scope) -> bool:
    """Whether its promise is that something happens, and not only that nothing wrong does."""
    return "PROGRESS" in scope.sizes


def _asked(scope: Scope) -> list[str]:
    return ["-a", "-f"] if _is_live(scope) else []


def _compile(folder: Path, model: Model, scope: Scope, *options: str) -> None:
    told = _run(["spin", *_defines(scope), "-a", model.path.name], folder)
    if not (folder / "pan.c").exists() or "Error" in told:
        raise Unfinished(f"spin refuses {model.path.name}: {told}")
    compiler = _compiler()
    assert compiler is not None
    told = _run(
        [
            compiler,
            *_OPTIONS,
            *(_LIVE if _is_live(scope) else _SAFE),
            f"-DMEMLIM={MEGABYTES}",
            *options,
            "-o",
            "pan",
            "pan.c",
        ],
        folder,
    )
    if not (folder / "pan").exists():
        raise Unfinished(f"{compiler} refuses {model.path.name}: {told}")


def _run(command: Sequence[str], folder: Path) -> str:
    try:
        done = run(command, cwd=folder, seconds=SECONDS, preexec_fn=_limit_memory)
    except subprocess.TimeoutExpired as error:
        raise Unfinished(f"{' '.join(command)} has not ended within {SECONDS} s") from error
    return done.stdout + done.stderr


def _limit_memory() -> None:
    most = (MEGABYTES + 500) * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _read(told: str, seconds: float) -> Explored:
    errors, states = re.search(r"errors: (\d+)", told), re.search(r"(\d+) states, stored", told)
    if errors is None or states is None or "max search depth too small" in told:
        raise Unfinished(told)
    why = re.search(r"pan: ?\d*: (.*)", told)
    if not int(errors[1]) and ("Search not completed" in told or "out of memory" in told):
        raise Unfinished(told)
    return Explored(int(states[1]), min(int(errors[1]), 1), why[1] if why else "", seconds)
