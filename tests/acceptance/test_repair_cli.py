"""`projections verify` and `projections rebuild --source` as a user runs them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from journal.database.sync import connect_sync
from tests.acceptance.test_rebuild_cli import module
from tests.acceptance.test_without_spark import ARROW, SPARK, Without
from tests.fixtures.commands import projections, query
from tests.fixtures.pgbouncer import pooler_beside

__all__ = ["module"]

PARK = """
INSERT INTO projections.parked_sources (projection_id, source_id, slice, seq_nr, event_type, error, attempts)
SELECT projection_id, 'N1', projections.slice_of_v1('N1'), 1, 'Landed', 'cannot', 1 FROM projections.projections
"""
DAMAGE = "UPDATE delays SET n = n + 1 WHERE source_id = 'N1'"


@pytest.fixture
def handled(module: Path, filled: str) -> Path:
    """The module, when a worker has handled the journal."""
    done = projections("worker", "flights:Delays", "--until-caught-up", "--dsn", filled, cwd=module)
    assert done.returncode == 0, done.stderr
    return module


def run(module: Path, dsn: str, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return projections(command, "delays", "--app", "flights", "--dsn", dsn, *arguments, cwd=module)


def damage(dsn: str) -> None:
    with connect_sync(dsn) as connection:
        assert connection.execute(DAMAGE).rowcount == 1


@pytest.mark.slow
def test_damage_is_found_and_mended(handled: Path, filled: str) -> None:
    right = query(filled, "SELECT * FROM delays ORDER BY 1")
    assert "no row differs: looked at 20 sources of 20, 100 events" in run(handled, filled, "verify").stdout
    damage(filled)

    found = run(handled, filled, "verify", "--all")
    assert found.returncode == 1
    assert all(word in found.stdout for word in ("delays", "source_id=N1", "different", " 6 ", " 5 "))
    assert "projections rebuild delays --app flights`, or of one source with --source ID" in found.stderr
    planned = run(handled, filled, "rebuild", "--source", "N1", "--dry-run")
    assert "1 row of 1 source would be replaced" in planned.stdout
    assert query(filled, "SELECT * FROM delays ORDER BY 1") != right
    mended = run(handled, filled, "rebuild", "--source", "N1", "--source", "N2")

    assert mended.returncode == 0, mended.stderr
    assert "1 row of 2 sources replaced" in mended.stdout
    assert query(filled, "SELECT * FROM delays ORDER BY 1") == right


@pytest.mark.slow
def test_json_has_every_row_that_differs(handled: Path, filled: str) -> None:
    damage(filled)

    found = run(handled, filled, "verify", "--sources", "20", "--json")

    assert found.returncode == 1
    values = json.loads(found.stdout)
    assert (values["sources"], values["of_sources"], values["differing"]) == (20, 20, 1)
    assert values["differences"] == [
        {"table": "delays", "key": {"source_id": "N1"}, "kind": "different", "columns": {"n": ["6", "5"]}}
    ]


@pytest.mark.slow
def test_both_work_behind_a_pooler(handled: Path, filled: str) -> None:
    damage(filled)
    with pooler_beside(filled) as address:
        assert run(handled, address, "verify").returncode == 1
        assert run(handled, address, "rebuild", "--source", "N1").returncode == 0
        assert run(handled, address, "verify", "--all").returncode == 0


@pytest.mark.slow
def test_neither_needs_an_extra(handled: Path, filled: str) -> None:
    without, where = Without(handled, *SPARK, *ARROW), ("delays", "--app", "flights", "--dsn", filled)

    for arguments in (("verify", *where), ("rebuild", *where, "--source", "N1")):
        done = without.run(*arguments)
        assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_what_cannot_be_compared_has_another_exit_code_than_what_differs(handled: Path, filled: str) -> None:
    def ends_with(*arguments: str, dsn: str = filled) -> tuple[int, str]:
        done = run(handled, dsn, "verify", *arguments)
        return done.returncode, done.stderr

    damage(filled)
    code = (handled / "flights.py").read_text()
    assert ends_with()[0] == 1
    assert ends_with(dsn="postgresql://nobody@127.0.0.1:1/nothing")[0] == 2
    for old, new, said in (
        ('entity_type="plane"', 'entity_type=("plane", "airport")', "version 1 reads events of type 'plane'"),
        ('entity_type="plane"', 'entity_type="plane", version=2', "runs version 1"),
        (
            "class Delays:",
            "class Delays:\n    async def start(self) -> None:\n        raise LookupError('mine')\n",
            "mine",
        ),
    ):
        assert old in code
        (handled / "flights.py").write_text(code.replace(old, new))
        ended, stderr = ends_with()
        assert (ended, said in stderr) == (2, True), stderr


@pytest.mark.slow
def test_parked_sources_are_named(handled: Path, filled: str) -> None:
    with connect_sync(filled) as connection:
        connection.execute("DELETE FROM projections.source_offsets WHERE source_id = 'N1'")
        connection.execute("DELETE FROM delays WHERE source_id = 'N1'")
        connection.execute(PARK)

    found, machine = run(handled, filled, "verify"), run(handled, filled, "verify", "--all", "--json")

    assert found.returncode == machine.returncode == 0, found.stderr
    assert "1 source parked, not compared from the event on that parks it: N1 (seq_nr 1)" in found.stdout
    values = json.loads(machine.stdout)
    assert (values["parked"], values["parked_events"]) == (1, [{"source_id": "N1", "seq_nr": 1}])


@pytest.mark.slow
def test_a_source_that_is_not_there_is_named(handled: Path, filled: str) -> None:
    refused = run(handled, filled, "rebuild", "--source", "N999")

    assert refused.returncode == 1
    assert "the journal has no source 'N999' that this projection reads" in refused.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("verify", "--all", "--sources", "3"), "pass it without --sources"),
        (("rebuild", "--source", "N1", "--slices", "0-3"), "--source goes without --slices"),
        (("rebuild", "--source", "N1", "--in-place"), "--source goes without --in-place"),
    ],
)
def test_options_that_do_not_go_together_are_named(
    handled: Path, filled: str, arguments: tuple[str, ...], reason: str
) -> None:
    refused = run(handled, filled, *arguments)

    assert refused.returncode == 2
    assert reason in refused.stderr
