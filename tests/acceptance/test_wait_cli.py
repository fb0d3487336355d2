"""``projections wait``: until projections have handled an append, or why they have not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from journal import Event, append_sync
from journal.database.sync import connect_sync
from tests.fixtures.commands import SEEN, called, projections, running

WORKER = ["worker", "app:Delays", "--ranges", "1"]


@pytest.fixture
def handled(app: Path, dsn: str) -> str:
    """`delays` has run."""
    with connect_sync(dsn) as connection:
        connection.execute(SEEN)
    run(app, dsn)
    return dsn


def run(app: Path, dsn: str) -> None:
    assert projections(*WORKER, "--dsn", dsn, "--until-caught-up", cwd=app).returncode == 0


def token(dsn: str) -> str:
    with connect_sync(dsn) as connection:
        return append_sync(
            connection, [Event("N9", {"delay": 3}, entity_type="plane", event_type="Landed")]
        ).token


@pytest.mark.slow
def test_what_was_handled_is_said(app: Path, handled: str) -> None:
    given = token(handled)
    run(app, handled)

    text = called("wait", "delays", "--token", given, "--dsn", handled)
    values = json.loads(called("wait", "delays", "--token", given, "--json", "--dsn", handled).stdout)

    assert (text.returncode, text.stdout) == (0, "handled by 'delays'\n")
    assert values.pop("seconds") < 30
    assert values == {"projections": ["delays"], "handled": True}


def test_it_waits_for_a_worker(app: Path, handled: str) -> None:
    given = token(handled)
    with running("app:Delays", "--dsn", handled, cwd=app):
        result = called("wait", "delays", "--token", given, "--dsn", handled)

    assert (result.returncode, result.stdout) == (0, "handled by 'delays'\n")


@pytest.mark.slow
def test_when_the_time_is_over_it_says_why(handled: str) -> None:
    result = called("wait", "delays", "--token", token(handled), "--timeout", "50ms", "--dsn", handled)

    said = "not handled within 0.05 s: projection 'delays': no worker has slices 0 to 1023"
    assert (result.returncode, result.stdout, result.stderr) == (1, "", f"error: {said}\n")


@pytest.mark.slow
def test_an_unknown_projection_and_a_wrong_token_are_refused(handled: str) -> None:
    unknown = called("wait", "delay", "--token", token(handled), "--dsn", handled)
    wrong = called("wait", "delays", "--token", "N9", "--dsn", handled)

    assert (unknown.returncode, wrong.returncode) == (1, 2)
    assert (
        "no projection 'delay' has run on this database; known: delays. Did you mean 'delays'?"
        in unknown.stderr
    )
    assert wrong.stderr == "error: 'N9' is not a token of an append: pass it as it was given out\n"
