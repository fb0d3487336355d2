"""Commands that run other programs: whatever ends a command ends those, and what they have started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.fixtures.processes import children

ROOT = Path(__file__).parents[2]
ENDS = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL]
PROGRAM = """\
import subprocess
import sys
from pathlib import Path
from threading import Event

from tests.fixtures.processes import end_with_this_process, none_left_behind, run, told_to_end

program, fifo, *who = sys.argv
if not who:
    end_with_this_process()
    with told_to_end(), none_left_behind():
        run([sys.executable, program, fifo, "child"], cwd=Path.cwd(), seconds=3600)
elif who == ["child"]:
    subprocess.run([sys.executable, program, fifo, "grandchild"])
else:
    with open(fifo, "w") as told:
        print("begun", file=told, flush=True)
        Event().wait()
"""


@contextmanager
def running(*command: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A command whose output all that it starts holds, too: that ends with the last of them."""
    with subprocess.Popen(
        [sys.executable, *command], cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0", **environment},
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="lists processes by /proc")
@pytest.mark.daily(1)
@pytest.mark.parametrize("how", ENDS)
def test_a_simulation_that_is_ended_leaves_no_process(how: signal.Signals) -> None:
    with running("-m", "tests.simulation", "--seeds", "100000", "--processes", "2") as command:
        while len(children(command.pid)) < 2:
            assert command.poll() is None
        command.send_signal(how)

        command.communicate(timeout=300)

    assert command.returncode == -how


@pytest.mark.daily(2)
@pytest.mark.parametrize("how", ENDS)
def test_a_command_that_is_ended_leaves_nothing_of_what_it_runs(tmp_path: Path, how: signal.Signals) -> None:
    program, fifo = tmp_path / "program.py", tmp_path / "fifo"
    program.write_text(PROGRAM)
    os.mkfifo(fifo)
    with running(str(program), str(fifo)) as command, fifo.open() as told:
        assert told.readline() == "begun\n"
        command.send_signal(how)

        assert told.read() == ""  # the last process that has it open has ended
        command.communicate(timeout=300)

    assert command.returncode != 0
