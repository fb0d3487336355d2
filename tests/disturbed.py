"""
Runs a command on a bad day: ``python -m tests.disturbed -- python -m pytest -n auto``.

All processes that it starts are stopped for random moments, and others use the processors. Ends with the code of the
command. Linux only.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from tests.fixtures.processes import end_with_this_process, marked


def main(given: list[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    asked = _arguments(given)
    end_with_this_process()
    print(f"--seed {asked.seed}", file=sys.stderr)
    chance = random.Random(asked.seed)
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(asked.busy)]
    spared = {os.getpid(), *(one.pid for one in busy)}
    mark = os.environ["TESTS_STARTED_BY"].split()[-1]
    stops = 0
    try:
        with subprocess.Popen(asked.command) as command:
            while command.poll() is None:
                found = [one for one in marked(mark) if one not in spared]
                for one in chance.sample(found, min(asked.stops, len(found))):
                    _stop(one, chance.uniform(0, asked.longest))
                    stops += 1
                time.sleep(chance.uniform(0, asked.longest))
    finally:
        for process in busy:
            process.kill()
            process.wait()
    print(f"{stops} processes were stopped", file=sys.stderr)
    return command.returncode


def _arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.disturbed", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32), help="by default a new one")
    parser.add_argument(
        "--busy", type=int, default=4, metavar="N", help="so many use the processors (default: 4)"
    )
    parser.add_argument(
        "--stops", type=int, default=3, metavar="N", help="so many are stopped at a time (default: 3)"
    )
    parser.add_argument(
        "--longest", type=float, default=0.8, metavar="SECONDS", help="the longest stop (default: 0.8)"
    )
    parser.add_argument("command", nargs="+", help="the command and its arguments, after --")
    return parser.parse_args(given)


def _stop(process: int, seconds: float) -> None:
    """Stop a process now, and let it go on later; a test has its reasons for one that is stopped already."""
    with suppress(OSError):
        if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "T":
            return
        os.kill(process, signal.SIGSTOP)
        threading.Timer(seconds, _let_go_on, (process,)).start()


def _let_go_on(process: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGCONT)


if __name__ == "__main__":
    sys.exit(main())
