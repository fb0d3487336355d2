"""`projections worker --http`: metrics and health of a process, and who may ask."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import httpx
import pytest

from tests.fixtures.commands import environment, projections, running


def get(address: str, path: str) -> httpx.Response:
    return httpx.get(f"http://{address}{path}", trust_env=False)


@pytest.mark.slow
def test_a_worker_serves_its_metrics_and_that_it_is_ready(app: Path, filled: str) -> None:
    with running("app:Delays", "--dsn", filled, "--ranges", "2", "--http", "127.0.0.1:0", cwd=app) as run:
        address = run.until("serving")["address"]
        run.until_all("started", 2)

        assert get(address, "/readyz").json() == {"status": "ok"}
        assert re.search(
            'projections_worker_ranges{.*projection="delays"} 2.0', get(address, "/metrics").text
        )
        run.signal(signal.SIGTERM)
        assert run.end() == 0


@pytest.mark.slow
def test_each_of_several_processes_serves_its_own(app: Path, filled: str) -> None:
    with running("app:Delays", "--dsn", filled, "--processes", "2", "--http", "127.0.0.1:0", cwd=app) as run:
        addresses = [line["address"] for line in run.until_all("serving", 2)]

        assert [get(address, "/livez").status_code for address in addresses] == [200, 200]
        run.signal(signal.SIGTERM)
        assert run.end() == 0


@pytest.mark.slow
def test_what_other_machines_reach_needs_a_token(app: Path, filled: str) -> None:
    result = projections("worker", "app:Delays", "--dsn", filled, "--http", "0.0.0.0:0", cwd=app)

    assert result.returncode == 1
    assert "PROJECTIONS_TOKEN" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.slow
def test_an_address_that_is_none_is_refused(app: Path, filled: str) -> None:
    result = projections("worker", "app:Delays", "--dsn", filled, "--http", ":9187", cwd=app)

    assert result.returncode == 2
    assert "127.0.0.1:9187" in result.stderr


@pytest.mark.slow
def test_an_address_in_use_is_named(app: Path, filled: str) -> None:
    with running("app:Delays", "--dsn", filled, "--http", "127.0.0.1:0", cwd=app) as run:
        address = run.until("serving")["address"]

        result = projections(
            *("worker", "app:Delays", "--dsn", filled, "--http", address), cwd=app, env=environment()
        )

    assert result.returncode == 1
    assert address in result.stderr
