"""Numbers and times that no event can have: each delays its own source alone, and none is passed over silently."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import asyncpg
import pytest

from journal import Database, EventEnvelope, connect
from journal.foreign import TableMapping, table_log
from projections.monitoring import projection_lags
from tests.fixtures.foreign import FOREIGN
from tests.fixtures.projections import NO_RETRY, Told, caught_up, effects, recording, running, until

TABLE = """
CREATE TABLE orders (
    id bigserial UNIQUE, name text, version bigint, revision bigint DEFAULT 1, kind text DEFAULT 'Happened',
    body jsonb NOT NULL DEFAULT '{}', at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (name, version)
);
CREATE INDEX ON orders (at)
"""
SOUND = "INSERT INTO orders (name, version) SELECT $1, n + $2 FROM generate_series(0, 2) AS n"
BY_NUMBER = TableMapping.from_toml("""
table = "orders"
source = "name"
number = "version"
position = "id"
bound = "sequence"
entity_type = { constant = "plane" }
event_type = "kind"
payload = "body"
version = "revision"
""")
BY_TIME = replace(BY_NUMBER, position="at", bound="transaction-start")
LARGEST = 2**63 - 1
EVERYWHERE = [
    ("version", LARGEST),
    ("version", -LARGEST - 1),
    ("version", 0),
    ("version", -1),
    ("revision", 2**40),
]
PLACES = f"id = {LARGEST - 1}", [("id", LARGEST), ("id", -7)]
TIMES = (
    "at = 'infinity'",
    [("at", "infinity"), ("at", "-infinity"), ("at", "12345-01-01"), ("at", "1960-01-01")],
)


class Numbers(Told):
    def __init__(self) -> None:
        super().__init__()
        self.numbers: list[tuple[str, int]] = []

    def passed_over(self, name: str, envelope: EventEnvelope) -> None:
        self.numbers.append((envelope.source_id, envelope.seq_nr))


@pytest.mark.daily(2)
@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
@pytest.mark.parametrize(
    ("mapping", "changed", "rows"),
    [
        (BY_NUMBER, *PLACES),
        (BY_TIME, *TIMES),
        (replace(BY_NUMBER, first_number=0), *PLACES),
        (replace(BY_TIME, first_number=0), *TIMES),
    ],
)
async def test_others_are_handled_and_what_is_passed_over_is_counted(  # noqa: PLR0917 - fixtures
    owner: asyncpg.Connection,
    empty_dsn: str,
    read_side: Database,
    caplog: pytest.LogCaptureFixture,
    mapping: TableMapping,
    changed: str,
    rows: list[tuple[str, Any]],
    driver: str,
) -> None:
    first = mapping.first_number
    await owner.execute(SOUND, "first", first)
    for number, (column, value) in enumerate(EVERYWHERE + rows):
        values = {"name": f"'bad {number}'", "version": str(first), column: f"'{value}'"}
        await owner.execute(f"INSERT INTO orders ({', '.join(values)}) VALUES ({', '.join(values.values())})")
    # In the middle of a source, whose later events lead to it.
    await owner.execute(SOUND, "gap", first)
    await owner.execute(f"UPDATE orders SET {changed} WHERE name = 'gap' AND version = $1::bigint + 1", first)
    await owner.execute(SOUND, "later", first)
    await owner.execute("UPDATE orders SET revision = NULL WHERE name = 'later'")  # as of the first version

    async with connect(empty_dsn, FOREIGN[driver]) as database:
        log = await table_log(database, mapping, name="shop")
        await caught_up(read_side, recording(recovery=NO_RETRY), journal=log)

    handled = await effects(read_side)
    for source_id in ("first", "later"):
        assert [seq_nr for one, seq_nr in handled if one == source_id] == [1, 2, 3]
    said = f"{len(rows) + 1} events are passed over: their position is before 1970"
    assert said in caplog.text
    async with read_side.session() as session:
        parked = await session.fetch("SELECT source_id, error FROM projections.parked_sources")
    assert [row["source_id"] for row in parked if "as version 2147483647" in row["error"]] == ["bad 4"]


async def test_what_comes_later_and_is_passed_over_is_told_and_counted(
    owner: asyncpg.Connection,
    empty_dsn: str,
    read_side: Database,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("projections.running.runner.LOOK_EVERY", 0.0)
    monkeypatch.setattr("projections.running.read_journal.LOOK_EVERY", 0.01)
    told, bad = Numbers(), "INSERT INTO orders (name, version, at) VALUES ($1, $2, $3::text::timestamptz)"
    async with connect(empty_dsn, FOREIGN["asyncpg"]) as database:
        log = await table_log(database, BY_TIME, name="shop")
        async with running(read_side, recording(), journal=log, observer=told):
            await owner.execute(SOUND, "first", -1)
            await until(read_side, "SELECT count(*) = 2 FROM effects")
            assert "passed over: their position" not in caplog.text
            for time in ("infinity", "-infinity", "12345-01-01", "1960-01-01"):
                await owner.execute(bad, time, 1, time)
            async with asyncio.timeout(300):
                while "4 events are passed over: their position is before 1970" not in caplog.text:
                    await asyncio.sleep(0)
        async with read_side.session() as session:
            (lag,) = await projection_lags(session, journal=log)

    assert (lag.passed_over, lag.backlog) == (4, 0)
    assert "first', seq_nr -1 is passed over, and so is each event with a number below" in caplog.text
    assert ("first", -1) in told.numbers


@pytest.mark.parametrize("by_slice", [True, False], ids=["slice first", "place first"])
async def test_a_slice_that_there_is_not_is_counted(
    owner: asyncpg.Connection,
    empty_dsn: str,
    read_side: Database,
    caplog: pytest.LogCaptureFixture,
    by_slice: bool,
) -> None:
    await owner.execute(
        "ALTER TABLE orders ADD slice int NOT NULL DEFAULT 5, ADD type text NOT NULL DEFAULT 'plane'"
    )
    if by_slice:
        await owner.execute("DROP INDEX orders_at_idx; CREATE INDEX ON orders (slice, type, at)")
    mapping = replace(BY_TIME, slice="slice", entity_type="type")
    await owner.execute(SOUND, "first", 1)
    for number in (-1, 1024, 2000):
        await owner.execute(
            "INSERT INTO orders (name, version, slice) VALUES ($1, 1, $2)", f"bad {number}", number
        )
    await owner.execute("INSERT INTO orders (name, version, at) VALUES ('late', 1, 'infinity')")

    async with connect(empty_dsn, FOREIGN["asyncpg"]) as database:
        log = await table_log(database, mapping, name="shop")
        await caught_up(read_side, recording(recovery=NO_RETRY), journal=log)
        assert await log.passed_over() == (4 if by_slice else 1)

    said = (
        ("4 events are passed over: their position",)
        if by_slice
        else ("1 events are passed over: their position", "3 events are passed over: their slice")
    )
    assert all(one in caplog.text for one in said)
