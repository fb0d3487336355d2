"""
Injects faults by the thousand, and compares every event: ``python -m tests.chaos --faults 10000``.

A fault counts when it has hit: a statement was cancelled, a connection ended, an answer lost. Nothing may be lost,
doubled or out of order; groups and webhooks promise at least once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
import signal
import sys
import tempfile
from pathlib import Path

from tests.chaos.arrangements import ARRANGEMENTS, Outcome, inject, left_out
from tests.chaos.faults import KINDS
from tests.fixtures.failover import base_server
from tests.fixtures.postgres import binaries_for
from tests.fixtures.processes import end_with_this_process, none_left_behind


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument(
        "--faults", type=int, default=1000, help="how many are to hit, in all arrangements together"
    )
    parser.add_argument("--seed", type=int, default=random.randrange(2**32), help="of all that is chosen")
    parser.add_argument(
        "--only", action="append", choices=KINDS, metavar="KIND", help=f"kinds of faults: {', '.join(KINDS)}"
    )
    parser.add_argument(
        "--arrangement", action="append", choices=ARRANGEMENTS, metavar="NAME", help=", ".join(ARRANGEMENTS)
    )
    parser.add_argument("--postgres", default="embedded", help="embedded, system or a major version")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args()


async def _run(arguments: argparse.Namespace) -> list[Outcome]:
    if (running := asyncio.current_task()) is not None:  # neither leaves a directory behind
        for one in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(one, running.cancel)
    names = arguments.arrangement or list(ARRANGEMENTS)
    outcomes = []
    with base_server(binaries_for(arguments.postgres)) as base, tempfile.TemporaryDirectory() as logs:
        for number, name in enumerate(names):
            faults = arguments.faults // len(names) + (number < arguments.faults % len(names))
            outcome = await inject(
                name, base, Path(logs), faults, arguments.seed, kinds=arguments.only, report=_report
            )
            outcomes.append(outcome)
            print(outcome, file=sys.stderr, flush=True)
    return outcomes


def _report(text: str) -> None:
    end = "\r" if sys.stderr.isatty() else "\n"
    print(text, end=end, file=sys.stderr, flush=True)


def main() -> int:
    """Inject and compare."""
    arguments = _arguments()
    logging.basicConfig(level=logging.CRITICAL)  # what the harm does to this process is no news
    print(f"seed {arguments.seed}", file=sys.stderr, flush=True)
    for kind, reason in left_out().items():
        print(f"left out: {kind}: {reason}", file=sys.stderr, flush=True)
    end_with_this_process()
    with none_left_behind():
        outcomes = asyncio.run(_run(arguments))
    clean = all(outcome.clean for outcome in outcomes)
    faults = sum(sum(outcome.faults.values()) for outcome in outcomes)
    if arguments.json:
        values = {"seed": arguments.seed, "faults": faults, "clean": clean, "left_out": left_out()}
        print(json.dumps({**values, "arrangements": [outcome.values for outcome in outcomes]}))
    else:
        print(f"{faults:,} faults, {'nothing' if clean else 'SOMETHING'} lost, doubled or out of order")
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
