"""
Measures the library beside the bare work on the same database: ``python -m tests.benchmarks``.

Without a DSN an embedded server is measured, with the settings that every user of it gets.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Awaitable, Callable

from projections.running import loop_runner
from tests.benchmarks.akka import measure_akka
from tests.benchmarks.appending import measure_append, measure_import
from tests.benchmarks.capturing import measure_capture
from tests.benchmarks.clustering import measure_clustering
from tests.benchmarks.columns import measure_columns
from tests.benchmarks.entity_types import measure_types
from tests.benchmarks.harness import QUICK, Line, Sizes
from tests.benchmarks.idle import measure_idle
from tests.benchmarks.inline import measure_inline
from tests.benchmarks.keeping import measure_keeping
from tests.benchmarks.latency import measure_latency
from tests.benchmarks.memory import measure_memory
from tests.benchmarks.pgmb import measure_pgmb
from tests.benchmarks.projecting import measure_projection
from tests.benchmarks.reading import measure_read
from tests.benchmarks.rebuilding import measure_rebuild
from tests.benchmarks.repairing import measure_repair
from tests.benchmarks.report import machine, show
from tests.benchmarks.scale import measure_scale
from tests.benchmarks.server import Server, compiling_server, server
from tests.benchmarks.spark import measure_spark
from tests.benchmarks.subscriptions import measure_subscriptions
from tests.benchmarks.waiting import measure_waiting
from tests.benchmarks.webhooks import measure_webhooks
from tests.benchmarks.workers import measure_workers
from tests.fixtures.processes import end_with_this_process

BENCHMARKS: dict[str, Callable[[Server, Sizes], Awaitable[list[Line]]]] = {
    "append": measure_append,
    "import": measure_import,
    "capture": measure_capture,
    "read": measure_read,
    "types": measure_types,
    "clustering": measure_clustering,
    "projection": measure_projection,
    "columns": measure_columns,
    "repair": measure_repair,
    "rebuild": measure_rebuild,
    "spark": measure_spark,
    "subscriptions": measure_subscriptions,
    "pgmb": measure_pgmb,
    "webhooks": measure_webhooks,
    "workers": measure_workers,
    "latency": measure_latency,
    "waiting": measure_waiting,
    "inline": measure_inline,
    "keeping": measure_keeping,
    "idle": measure_idle,
    "memory": measure_memory,
    "scale": measure_scale,
    "akka": measure_akka,
}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument(
        "--dsn", help="PostgreSQL URL of a role that may create databases (default: PROJECTIONS_DSN)"
    )
    parser.add_argument(
        "--compiling",
        action="store_true",
        help="measure a temporary server of the installed PostgreSQL that compiles all that it can (JIT)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--quick", action="store_true", help="small sizes: shows that all works, measures nothing"
    )
    parser.add_argument(
        "--only", action="append", choices=BENCHMARKS, metavar="NAME", help=", ".join(BENCHMARKS)
    )
    return parser.parse_args()


async def _measure(measured: Server, names: list[str], sizes: Sizes) -> tuple[list[Line], list[str]]:
    """Their lines, and the names of those that failed: one fault must not cost the rest of a long run."""
    lines: list[Line] = []
    failed: list[str] = []
    for name in names:
        begun = time.perf_counter()
        print(f"{name} ...", end=" ", file=sys.stderr, flush=True)
        try:
            lines += await BENCHMARKS[name](measured, sizes)
        except Exception:  # noqa: BLE001 - shown, and the run ends with it
            traceback.print_exc()
            failed.append(name)
        print(f"{time.perf_counter() - begun:.0f} s", file=sys.stderr, flush=True)
    return lines, failed


def main() -> None:
    """Measure and print."""
    arguments = _arguments()
    end_with_this_process()
    sizes = QUICK if arguments.quick else Sizes()
    with compiling_server() if arguments.compiling else server(arguments.dsn) as measured:
        with loop_runner() as runner:
            lines, failed = runner.run(_measure(measured, arguments.only or list(BENCHMARKS), sizes))
        facts: dict[str, object] = {"machine": machine(), "server": measured.settings()}
    if arguments.json:
        print(json.dumps({**facts, "quick": arguments.quick, "results": [line.as_json() for line in lines]}))
    else:
        show(lines, facts)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
