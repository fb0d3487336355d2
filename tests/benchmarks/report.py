"""What a run prints: a table to read, or one JSON object."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.benchmarks.harness import Line

_PACKAGES = ("asyncpg", "psycopg", "pydantic", "uvloop", "eventsourcing")


def machine() -> dict[str, object]:
    """What the numbers depend on, beside the server."""
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "cpu": _cpu(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: found for name in _PACKAGES if (found := _version(name))},
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def as_table(lines: Sequence[Line]) -> Table:
    """The lines to read."""
    table = Table("what", "measured", "beside", "its value", "ratio", "goal", "met")
    for column in (1, 3, 4, 5):
        table.columns[column].justify = "right"
    for line in lines:
        table.add_row(
            line.what,
            f"{_figure(line.value)} {line.unit}",
            line.beside or "",
            "" if line.beside_value is None else _figure(line.beside_value),
            "" if line.ratio is None else f"{line.ratio:.2f}x",
            str(line.goal or ""),
            {None: "", True: "yes", False: "NO"}[line.met],
        )
    return table


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def show(lines: Sequence[Line], facts: Mapping[str, object]) -> None:
    """Print the table, and below it the machine."""
    console = Console(width=None if os.isatty(1) else 160)
    console.print(as_table(lines))
    for name, value in facts.items():
        console.print(f"{name}: {value}", highlight=False)
