"""The processes that parts of the work are spread over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PROGRAM = """\
import sys
from threading import Event

from spark_projections.engine.parallel import spread


def work(part):
    print(f"{part}\\n", end="", flush=True)  # in one write: two processes share the pipe
    if part == "busy":
        Event().wait()


if __name__ == "__main__":
    list(spread(work, sys.argv[1:], processes=2))
"""


@pytest.mark.daily(1)
@pytest.mark.parametrize("parts", [("busy", "busy"), ("busy", "idle")], ids="-".join)
def test_processes_end_when_their_parent_is_killed(tmp_path: Path, parts: tuple[str, str]) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    errors = tmp_path / "errors"
    with (
        errors.open("w") as stderr,
        subprocess.Popen(
            [sys.executable, program, *parts],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            start_new_session=True,
        ) as parent,
    ):
        try:
            assert parent.stdout is not None
            begun = [parent.stdout.readline().strip() for _ in parts]
            parent.kill()
            # Every process holds the pipe: it ends when the last of them has.
            parent.communicate(timeout=300)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(parent.pid, signal.SIGKILL)

    assert sorted(begun) == sorted(parts), errors.read_text()
