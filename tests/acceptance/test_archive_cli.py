"""``projections archive`` and ``projections backfill`` as a user types them."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from journal import import_events
from journal.database import connect
from journal.database.sync import connect_sync
from journal.partitions.making import make_partitions
from projections.cli import main
from tests.fixtures.commands import projections, query
from tests.fixtures.journal import historic

COUNT = "SELECT count(*) FROM projections.events"


@pytest.fixture
def journal(dsn: str) -> str:
    """Two days, each in its partition."""

    async def fill() -> None:
        async with connect(dsn) as database:
            await import_events(
                database, [historic(f"N{n}", 1 + d, d * 86400) for d in (0, 1) for n in range(5)]
            )
            await make_partitions(database, ahead=1, interval=timedelta(days=1))

    asyncio.run(fill())
    return dsn


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, list(map(str, arguments)))


@pytest.mark.slow
def test_archived_partition_is_verified_detached_and_restored_by_what_the_commands_print(
    journal: str, tmp_path: Path
) -> None:
    archive = tmp_path / "an archive"
    exported = projections("archive", "export", str(archive), "--dsn", journal)
    lines = exported.stdout.splitlines()
    verified = call("archive", "verify", archive, "--against-journal", "--dsn", journal)
    with connect_sync(journal) as connection:
        for line in lines[2:]:
            connection.execute(line)
    left = query(journal, COUNT)
    refused = call("archive", "restore", archive, "--dsn", journal)
    with connect_sync(journal) as connection:
        for name in (line.split("'")[1] for line in lines[3:]):
            connection.execute(f"DROP TABLE projections.{name}")
    restored = call("archive", "restore", archive, "--dsn", journal)

    assert lines[:3] == [
        "exported 10 events of 2 partitions into 2 files",
        f"when `projections archive verify '{archive}' --against-journal` finds no difference:",
        "SET lock_timeout = '500ms';",
    ]
    assert verified.exit_code == 0
    assert verified.stdout == (
        "2 files, 10 events: no differences; compared with the journal by partition and entity type: 2\n"
    )
    assert left == [(0,)]
    assert (refused.exit_code, "is there, detached" in refused.stderr) == (1, True)
    assert restored.exit_code == 0
    assert restored.stdout.splitlines() == [
        "2020-01-01 00:00 to 2020-01-02 00:00 UTC: 5 events restored",
        "2020-01-02 00:00 to 2020-01-03 00:00 UTC: 5 events restored",
    ]
    assert query(journal, COUNT) == [(10,)]


@pytest.mark.slow
def test_each_command_answers_in_json(journal: str, tmp_path: Path) -> None:
    exported = call("archive", "export", tmp_path, "--dsn", journal, "--json")
    verified = call("archive", "verify", tmp_path, "--json")
    restored = call("archive", "restore", tmp_path, "--dsn", journal, "--json")

    found = json.loads(exported.stdout)
    assert (found["rows"], found["files"], found["again"]) == (10, 2, [])
    assert found["detachable"] == found["partitions"]
    assert found["detach"][0].startswith(
        f"SELECT projections.detach_partition_v1('{found['partitions'][0]}', "
    )
    assert json.loads(verified.stdout)["differences"] == []
    assert [part["present"] for part in json.loads(restored.stdout)["partitions"]] == [5, 5]


@pytest.mark.slow
def test_difference_is_an_exit_code_of_1(journal: str, tmp_path: Path) -> None:
    call("archive", "export", tmp_path, "--dsn", journal)
    next(tmp_path.glob("entity_type=plane/*/*.parquet")).unlink()

    verified = call("archive", "verify", tmp_path)

    assert verified.exit_code == 1
    assert "cannot be read (No such file or directory): restore it from a backup" in verified.stdout
    assert verified.stdout.endswith("2 files, 10 events: 1 difference\n")


@pytest.mark.slow
def test_lost_manifest_is_refused_and_repaired_by_the_command_that_is_named(
    journal: str, tmp_path: Path
) -> None:
    call("archive", "export", tmp_path, "--dsn", journal)
    (tmp_path / "_manifest.json").unlink()

    refused = call("archive", "export", tmp_path, "--dsn", journal)
    repaired = call("archive", "repair", tmp_path, "--json")
    verified = call("archive", "verify", tmp_path, "--against-journal", "--dsn", journal, "--json")

    assert refused.exit_code == 1
    assert f"`projections archive repair {tmp_path}`" in refused.stderr
    assert json.loads(repaired.stdout) == {
        "files": 2,
        "taken_in": [],
        "missing": [],
        "forgotten": [],
        "problems": [],
    }
    found = json.loads(verified.stdout)
    assert [found[name] for name in ("missing", "damaged", "doubled", "unnamed", "differences")] == [[]] * 5


def test_file_that_no_manifest_names_is_a_difference_and_taken_in_by_a_repair(
    journal: str, tmp_path: Path
) -> None:
    call("archive", "export", tmp_path, "--dsn", journal, "--until", "2020-01-02T00:00:00Z")
    older = (tmp_path / "_manifest.json").read_bytes()
    call("archive", "export", tmp_path, "--dsn", journal)
    for path in (tmp_path / "_manifests").iterdir():
        path.unlink()
    (tmp_path / "_manifest.json").write_bytes(older)

    verified = call("archive", "verify", tmp_path)
    repaired = call("archive", "repair", tmp_path)

    assert verified.exit_code == 1
    assert "no manifest names it, so nobody reads it" in verified.stdout
    assert (repaired.exit_code, repaired.stdout) == (
        0,
        "the manifest names 2 files, 1 of them taken in now\n",
    )


@pytest.mark.slow
def test_file_that_is_gone_is_named_until_it_is_given_up(journal: str, tmp_path: Path) -> None:
    call("archive", "export", tmp_path, "--dsn", journal)
    gone = min(tmp_path.rglob("*.parquet"))
    gone.unlink()

    repaired = call("archive", "repair", tmp_path)
    forgotten = call("archive", "repair", tmp_path, "--forget-missing")
    verified = call("archive", "verify", tmp_path)

    name = gone.relative_to(tmp_path)
    assert (repaired.exit_code, forgotten.exit_code, verified.exit_code) == (1, 0, 0)
    assert (
        f"{name}: it is not there: restore it from a backup, or give it up: --forget-missing\n"
        in repaired.stdout
    )
    assert forgotten.stdout == (
        f"{name}: it is not there, and not named any more\nthe manifest names 1 files, 0 of them taken in now\n"
    )


@pytest.mark.parametrize("command", [("archive", "export"), ("maintain", "--archive")])
def test_address_of_an_object_store_is_refused(journal: str, command: tuple[str, str]) -> None:
    result = call(*command, "s3://bucket/archive", "--dsn", journal)

    assert result.exit_code == 2
    assert "an archive is written to a file system" in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("time", "said"),
    [
        ("yesterday", "'yesterday' is not a time: write 2h for two hours ago, or 20"),
        ("2020-01-01T00:00:00", "has no zone: write 2020-01-01T00:00:00Z for UTC"),
    ],
)
def test_time_without_a_zone_is_refused(tmp_path: Path, time: str, said: str) -> None:
    result = call("archive", "export", tmp_path, "--until", time)

    assert result.exit_code == 2
    assert said in result.output


def test_master_with_the_local_engine_is_refused(journal: str, tmp_path: Path) -> None:
    result = call(
        "archive", "export", tmp_path, "--engine", "local", "--master", "local[2]", "--dsn", journal
    )

    assert result.exit_code == 2
    assert "--master is for --engine spark" in result.output


def test_database_without_the_schema_says_what_to_do(empty_dsn: str, tmp_path: Path) -> None:
    result = call("archive", "export", tmp_path / "a", "--dsn", empty_dsn)

    assert result.exit_code == 1
    assert "projections schema install" in result.output


@pytest.mark.slow
def test_backfill_checks_imports_and_skips(dsn: str, tmp_path: Path) -> None:
    path = tmp_path / "history.csv"
    path.write_text(
        "tail,event_type,payload,db_timestamp\n"
        + "".join(f"N{n % 2},Landed,{{}},2020-01-0{n}T00:00:00Z\n" for n in range(1, 8))
    )
    arguments = ("backfill", str(path), "--entity-type", "plane", "--map", "tail=source_id", "--dsn", dsn)

    checked = call(*arguments, "--dry-run")
    first = projections(*arguments)
    again = call(*arguments, "--json")

    assert checked.stdout == "7 events of 2 sources would be imported\n"
    assert (first.returncode, first.stdout) == (0, "7 events of 2 sources imported\n")
    assert json.loads(again.stdout) == {"events": 0, "skipped": 7, "sources": 2, "dry_run": False}
    assert query(dsn, COUNT) == [(7,)]


def test_backfill_names_the_bad_row_in_one_line(dsn: str, tmp_path: Path) -> None:
    path = tmp_path / "history.json"
    path.write_text(
        '{"source_id": "N1", "event_type": "Landed", "payload": {}, "db_timestamp": "2020-01-01"}\n'
    )

    result = call("backfill", path, "--entity-type", "plane", "--dsn", dsn)

    assert result.exit_code == 1
    assert result.stderr == (
        f"error: {path}, row 1 (source 'N1'): db_timestamp 2020-01-01 00:00:00 is naive: give it a time zone, such as "
        "2026-01-31T12:00:00Z\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--map", "tail"], "'tail': write COLUMN=FIELD"),
        (["--map", "tail=id"], "'tail=id': write COLUMN=FIELD, where FIELD is one of source_id"),
        (["--map", "a=source_id", "--map", "b=source_id"], "source_id is given twice"),
        ([], "the names of the files do not tell one format: pass --format"),
    ],
)
def test_backfill_refuses_wrong_options(tmp_path: Path, arguments: list[str], message: str) -> None:
    path = tmp_path / "history.txt"
    path.touch()

    result = call("backfill", path, "--entity-type", "plane", *arguments)

    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


@pytest.mark.slow
def test_message_that_only_an_archive_may_have_is_erased_there(journal: str, tmp_path: Path) -> None:
    call("archive", "export", tmp_path, "--dsn", journal)

    unknown = call("webhooks", "erase", "acme", "m1", "--yes", "--dsn", journal)
    erased = call("archive", "erase", tmp_path, "--dsn", journal)
    nowhere = call("archive", "erase", tmp_path / "nothing", "--dsn", journal)

    assert unknown.exit_code == 1
    assert "`projections archive erase`" in " ".join(unknown.stderr.split())
    assert query(journal, "SELECT tenant FROM projections.erased_messages") == [("acme",)]
    assert (erased.exit_code, erased.stdout) == (0, "payloads erased: 0; files rewritten: 0\n")
    assert (nowhere.exit_code, "is not an archive" in nowhere.stderr) == (1, True)
