"""What a test or a command has started ends with it, however it ends."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.commands import ROOT
from tests.fixtures.processes import marked

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are found by /proc")

RUN = """
import os, subprocess
from tests.fixtures.processes import end_with_this_process
end_with_this_process()
for command in (
    "exec tail -f /dev/null",
    "kill -STOP $$",
    "tail -f /dev/null & echo its parent has ended",
    "env -i tail -f /dev/null; echo it has no mark",
):
    subprocess.Popen(["sh", "-c", command], start_new_session=True, stdout=subprocess.DEVNULL)
print(os.environ["TESTS_STARTED_BY"].split()[-1], flush=True)
input()
"""


def state(process: int) -> str:
    """The name of what it runs, and its state."""
    try:
        return " ".join(Path(f"/proc/{process}/stat").read_text().split()[1:3])
    except OSError:  # it has just ended
        return ""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, None])
def test_all_that_a_process_has_started_ends_with_it(how: signal.Signals | None) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", RUN], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        mark = run.stdout.readline().strip()
        while sorted(map(state, left := marked(mark))) != ["(sh) S", "(sh) T", *["(tail) S"] * 3]:
            assert run.poll() is None
        ends = [os.pidfd_open(one) for one in left]
        if how is None:
            run.communicate("\n", timeout=300)
        else:
            run.send_signal(how)
            run.communicate(timeout=300)

    for end in ends:
        assert select.select([end], [], [], 300)[0]
        os.close(end)
    assert marked(mark) == []
