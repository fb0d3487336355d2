"""Numbers and times that no event can have: each delays its own source alone, and none is passed over silently."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import asyncpg
import pytest

from journal import Database, connect
from journal.foreign import TableMapping, table_log
from tests.fixtures.foreign import FOREIGN
from tests.fixtures.projections import NO_RETRY, caught_up, effects, recording

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
    said = f'{len(rows) + 1} events of table "public"."orders" are passed over: their position is before 1970'
    assert said in caplog.text
    async with read_side.session() as session:
        parked = await session.fetch("SELECT source_id, error FROM projections.parked_sources")
    assert [row["source_id"] for row in parked if "as version 2147483647" in row["error"]] == ["bad 4"]
