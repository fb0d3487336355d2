"""
Runs the library for hours, and judges what was measured: ``python -m tests.soak --hours 2``.

``python -m tests.soak plot soak.jsonl`` draws soak.svg beside the file, and judges it again.

Events are appended at a fixed rate on a server of its own, workers come, leave and are killed, old partitions are
dropped, webhooks are sent, and for a part of the time a transaction keeps every dead row. SIGTERM or Ctrl-C ends a run
early; what was appended is handled and compared all the same.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
import tempfile
from pathlib import Path

from tests.fixtures.processes import end_with_this_process
from tests.soak.plot import svg
from tests.soak.scoreboard import read, scoreboard
from tests.soak.soak import Options, Soak


def _arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument(
        "--hours",
        type=float,
        default=2.0,
        help="how long events are appended (default: 2; with less than 0.2, vacuum may not have come)",
    )
    parser.add_argument("--rate", type=float, default=200.0, help="events in a second (default: 200)")
    parser.add_argument(
        "--seed", type=int, default=random.randrange(2**32), help="of what happens to workers"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("soak.jsonl"), help="file for what is measured (default: soak.jsonl)"
    )
    return parser.parse_args(arguments)


async def _run(options: Options) -> None:
    with tempfile.TemporaryDirectory(prefix="sp-soak-") as directory:
        Path(directory).chmod(0o755)  # the server may run as another user
        soak = Soak(options, Path(directory))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, soak.stop)
        await soak.run()


def judge(path: Path) -> int:
    """Print the scoreboard of a file; returns 1 if a line fails."""
    scores = scoreboard(read(path))
    print(*scores, sep="\n")
    return 0 if all(score.passed for score in scores) else 1


def main() -> int:
    """Run or plot, and judge."""
    if sys.argv[1:2] == ["plot"]:
        parser = argparse.ArgumentParser(prog="python -m tests.soak plot")
        parser.add_argument("file", type=Path, help="what a soak has written, also one that still runs")
        path: Path = parser.parse_args(sys.argv[2:]).file
        path.with_suffix(".svg").write_text(svg(read(path)))
        return judge(path)
    arguments = _arguments(sys.argv[1:])
    end_with_this_process()
    arguments.out.unlink(missing_ok=True)
    asyncio.run(_run(Options(arguments.hours * 3600, arguments.rate, arguments.out, arguments.seed)))
    return judge(arguments.out)


if __name__ == "__main__":
    sys.exit(main())
