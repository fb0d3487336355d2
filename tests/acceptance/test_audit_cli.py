"""``projections audit``: on one database and on two, on a journal of another system, and on files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest

from journal import Log, connect
from projections.testing import run_until_caught_up
from tests.fixtures.commands import called, projections
from tests.fixtures.postgres import Databases
from tests.fixtures.projections import EFFECTS, NO_RETRY, caught_up, execute, failing, happen, recording

HANDLED = ["--handled", "SELECT source_id, seq_nr FROM effects ORDER BY n"]
Example = tuple[str, str, int]


def change(dsn: str, sql: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute(sql)  # type: ignore[call-overload]


async def handle(dsn: str, definition: type[Any]) -> None:
    """Three events of each of two sources, all handled that can be."""
    async with connect(dsn) as database:
        await execute(database, EFFECTS)
        for _ in range(3):
            await happen(database, "a", "b")
        await run_until_caught_up(database, definition)


def audited(*arguments: str, code: int = 0) -> dict[str, Any]:
    done = called("audit", *arguments, "--json")
    assert done.returncode == code, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["clean"] is (code == 0)
    (one,) = found["projections"]
    return dict(one)


def examples(found: dict[str, Any]) -> set[Example]:
    return {(one["kind"], one["source_id"], one["seq_nr"]) for one in found["examples"]}


@pytest.mark.slow
async def test_a_projection_that_has_handled_all_is_clean(dsn: str) -> None:
    await handle(dsn, recording())

    found = audited("p", *HANDLED, "--dsn", dsn)

    nothing = {"waiting": 0, "dropped": 0, "lost": 0, "doubled": 0, "out_of_order": 0, "invented": 0}
    assert found == {"projection": "p", "committed": 6, "handled": 6, **nothing, "examples": []}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        ("DELETE FROM effects WHERE source_id = 'a' AND seq_nr = 2", ("lost", "a", 2)),
        ("INSERT INTO effects (source_id, seq_nr) VALUES ('b', 3)", ("doubled", "b", 3)),
        (
            "UPDATE effects SET n = nextval('effects_n_seq') WHERE source_id = 'a' AND seq_nr = 1",
            ("out_of_order", "a", 1),
        ),
        ("INSERT INTO effects (source_id, seq_nr) VALUES ('c', 1)", ("invented", "c", 1)),
        ("INSERT INTO effects (source_id, seq_nr) VALUES ('b', 4)", ("invented", "b", 4)),
    ],
)
async def test_what_is_wrong_is_named_and_is_exit_code_1(dsn: str, damage: str, expected: Example) -> None:
    await handle(dsn, recording())
    change(dsn, damage)

    found = audited("p", *HANDLED, "--dsn", dsn, code=1)
    shown = called("audit", "p", *HANDLED, "--dsn", dsn)

    assert examples(found) == {expected}
    assert found[expected[0]] == 1
    kind, source_id, seq_nr = expected
    assert f"{kind.replace('_', ' ')}: {source_id} {seq_nr}" in shown.stdout.splitlines()
    assert shown.stderr == "1 event not handled as committed\n"


async def test_at_least_once_events_may_be_handled_again(dsn: str) -> None:
    await handle(dsn, recording())
    change(dsn, "INSERT INTO effects (source_id, seq_nr) SELECT source_id, seq_nr FROM effects ORDER BY n")

    assert audited("p", *HANDLED, "--at-least-once", "--dsn", dsn)["doubled"] == 6


@pytest.mark.slow
async def test_events_on_their_way_and_of_parked_sources_wait(dsn: str) -> None:
    await handle(dsn, recording(failing(("a", 2)), recovery=NO_RETRY))
    async with connect(dsn) as database:
        await happen(database, "b")

    found = audited("p", *HANDLED, "--dsn", dsn)
    strict = audited("p", *HANDLED, "--grace", "0s", "--dsn", dsn, code=1)

    assert (found["waiting"], strict["waiting"]) == (3, 2)
    assert examples(strict) == {("lost", "b", 4)}


@pytest.mark.slow
async def test_what_the_journal_has_dropped_is_neither_lost_nor_invented(dsn: str) -> None:
    await handle(dsn, recording())
    change(dsn, "DELETE FROM projections.events WHERE seq_nr < 3 OR source_id = 'b'")
    change(dsn, "INSERT INTO effects (source_id, seq_nr) VALUES ('b', 4)")  # which has never been there

    found = audited("p", *HANDLED, "--dsn", dsn, code=1)

    assert (found["committed"], found["dropped"]) == (1, 5)
    assert examples(found) == {("invented", "b", 4)}


@pytest.mark.slow
async def test_only_events_of_the_types_that_are_recorded_are_compared(dsn: str) -> None:
    await handle(dsn, recording())
    change(dsn, "UPDATE projections.events SET event_type = 'Passed' WHERE source_id = 'a' AND seq_nr = 3")
    change(dsn, "DELETE FROM effects WHERE source_id = 'a' AND seq_nr = 3")

    found = audited("p", *HANDLED, "--grace", "0s", "--dsn", dsn, code=1)
    assert examples(found) == {("lost", "a", 3)}
    assert audited("p", *HANDLED, "--event-type", "Happened", "--dsn", dsn)["committed"] == 5


async def test_an_event_with_the_number_of_another_is_told_by_its_id(dsn: str) -> None:
    await handle(dsn, recording())
    change(dsn, "ALTER TABLE effects ADD event_id uuid")
    change(
        dsn,
        "UPDATE effects AS f SET event_id = e.event_id FROM projections.events AS e "
        "WHERE (f.source_id, f.seq_nr) = (e.source_id, e.seq_nr)",
    )
    handled = ["--handled", "SELECT source_id, seq_nr, event_id FROM effects ORDER BY n"]
    audited("p", *handled, "--dsn", dsn)

    change(dsn, "UPDATE effects SET event_id = gen_random_uuid() WHERE source_id = 'a' AND seq_nr = 3")

    found = audited("p", *handled, "--grace", "0s", "--dsn", dsn, code=1)
    assert examples(found) == {("invented", "a", 3), ("lost", "a", 3)}


@pytest.mark.slow
async def test_a_journal_in_another_database_and_one_of_another_system(
    dsn: str, databases: Databases, template: str
) -> None:
    with databases.fresh(template) as elsewhere:
        async with connect(dsn) as read_side, connect(elsewhere) as journal:
            await execute(read_side, EFFECTS)
            await happen(journal, "a", "b")
            await caught_up(read_side, recording(), journal=Log(journal))
        sides = ["--read-side", dsn, "--journal", elsewhere]

        assert audited("p", *HANDLED, *sides)["committed"] == 2

        change(elsewhere, "CREATE TABLE log (stream text, version int)")
        change(elsewhere, "INSERT INTO log VALUES ('a', 1), ('b', 1), ('b', 7)")
        committed = ["--committed", "SELECT stream AS source_id, version AS seq_nr FROM public.log;"]
        found = audited("p", *committed, *HANDLED, *sides, code=1)
        assert examples(found) == {("lost", "b", 7)}


def write(path: Path, *rows: dict[str, object]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_files_are_compared_without_a_database(tmp_path: Path) -> None:
    event = {"source_id": "a", "seq_nr": 1, "at": "2026-01-31T12:00:00Z", "event_id": "x"}
    committed = write(tmp_path / "committed.jsonl", event, {**event, "seq_nr": 2})
    one, two = ({"source_id": "a", "seq_nr": 1, "projection": name} for name in ("one", "two"))
    handled = write(tmp_path / "handled.jsonl", one, two, {**two, "seq_nr": 2})

    done = called("audit", "--committed", committed, "--handled", handled, "--json")

    found = {each["projection"]: each["lost"] for each in json.loads(done.stdout)["projections"]}
    assert (done.returncode, found) == (1, {"one": 1, "two": 0})
    assert audited("two", "--committed", committed, "--handled", handled)["committed"] == 2


@pytest.mark.slow
def test_standard_input_is_a_file(tmp_path: Path) -> None:
    committed = write(tmp_path / "committed.jsonl", {"source_id": "a", "seq_nr": 1})

    done = projections(
        "audit",
        "--committed",
        committed,
        "--handled",
        "-",
        input='{"source_id": "a", "seq_nr": 1}\n',
        stdin=None,
    )

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nonsense", "line 1: not a JSON object: nonsense"),
        ('{"source": "a"}', "found the columns source: source_id and seq_nr are needed"),
        ('{"source_id": "a", "seq_nr": "1"}', "not a source and its number: 'a', '1'"),
        ('{"source_id": "a", "seq_nr": 1, "at": "noon"}', "at is 'noon': write a time with its zone"),
    ],
)
def test_a_line_that_cannot_be_meant_is_named(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "committed.jsonl").write_text(line + "\n")
    handled = write(tmp_path / "handled.jsonl")

    done = called("audit", "--committed", str(tmp_path / "committed.jsonl"), "--handled", handled)

    assert done.returncode == 1
    assert message in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--handled", "x.jsonl"], 2, "name the projection"),
        (["p", "--handled", "-", "--committed", "-"], 2, "standard input"),
        (["p", "--handled", "-", "--committed", "x", "--event-type", "t"], 2, "say so in --committed"),
        (["--handled", "no-such.jsonl", "--committed", "x"], 1, "no-such.jsonl: cannot be read"),
    ],
)
def test_what_does_not_go_together_is_refused(arguments: list[str], code: int, message: str) -> None:
    done = called("audit", *arguments)

    assert (done.returncode, message in done.stderr) == (code, True), done.stderr


async def test_a_query_may_only_read(dsn: str) -> None:
    await handle(dsn, recording())

    done = called(
        "audit", "p", "--handled", "WITH gone AS (DELETE FROM effects RETURNING *) SELECT * FROM gone", "--dsn", dsn
    )  # fmt: skip

    assert done.returncode == 1
    assert "DECLARE CURSOR must not contain data-modifying statements" in done.stderr
    assert audited("p", *HANDLED, "--dsn", dsn)["handled"] == 6


async def test_a_projection_that_never_ran_is_not_found(dsn: str) -> None:
    done = called("audit", "q", "--handled", "SELECT 'a' AS source_id, 1 AS seq_nr", "--dsn", dsn)

    assert done.returncode == 1
    assert "'q'" in done.stderr
