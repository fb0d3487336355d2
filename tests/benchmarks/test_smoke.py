from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.java import has_java

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
LINE = {"what", "value", "unit", "beside", "beside_value", "ratio", "goal", "met"}


@pytest.fixture
def home() -> Iterator[Path]:
    # Not below tmp_path: run by root, the server belongs to another account, which cannot enter that.
    path = Path(tempfile.gettempdir()) / f"slice-projections-benchmark-{uuid.uuid4().hex[:10]}"
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.mark.timeout(1500)
def test_a_quick_run_of_all_benchmarks_prints_one_json_object(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROJECTIONS_HOME", str(home))
    monkeypatch.delenv("PROJECTIONS_DSN", raising=False)

    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks", "--quick", "--json"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert printed["quick"] is True
    assert printed["machine"]["cores"] >= 1
    assert printed["server"]["fsync"] == "on"
    assert all(set(line) == LINE for line in printed["results"])
    assert {line["beside"] for line in printed["results"]} >= {
        "bare INSERT", "bare COPY", "eventsourcing", "live: append, and a worker handles it", "rebuild, 1 process",
    }  # fmt: skip
    assert {line["what"] for line in printed["results"]} >= {
        "a page of 100, 20 types", "append to read, 1,000 waiting, p50", "repair the row of a source",
        "catch up from the beginning, one subscription",
    }  # fmt: skip
    akka = {"exactly-once", "grouped", "Akka, asking as often", "Akka"}
    assert akka <= {line["beside"] for line in printed["results"]} or not has_java
    assert sum(line["goal"] is not None for line in printed["results"]) >= 10
