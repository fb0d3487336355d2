"""A soak of seconds: everything that a long one does happens, and what is said of events is right."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.commands import ROOT
from tests.soak.scoreboard import read, scoreboard

pytestmark = pytest.mark.slow


@pytest.mark.timeout(600)
def test_a_short_soak_ends_and_compares_all_that_was_appended(tmp_path: Path) -> None:
    out = tmp_path / "soak.jsonl"
    command = ["--hours", "0.01", "--rate", "40", "--seed", "1", "--out", str(out)]

    subprocess.run(
        [sys.executable, "-m", "tests.soak", *command],
        cwd=ROOT, check=False, timeout=540, env=os.environ | {"PROJECTIONS_HOME": str(tmp_path)},
    )  # fmt: skip

    lines = read(out)
    passed = {score.what for score in scoreboard(lines) if score.passed}
    assert passed >= {
        "history of projection", "history of webhooks", "the sums of the read model",
        "no process ends by itself, all end in order",
    }  # fmt: skip
    kinds = [line["kind"] for line in lines]
    assert {"join", "leave", "xmin held", "xmin released", "sample"} <= {*kinds}
    samples = [line for line in lines if line["kind"] == "sample"]
    assert {"worker 1", "worker 2", "deliverer 3", "server"} <= set(samples[-1]["processes"])
    assert samples[-1]["tables"]["events"]["bytes"] > 0
    assert samples[-1]["latency"]["p99"] >= samples[-1]["latency"]["p50"] > 0
