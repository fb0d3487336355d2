"""Tables of every type and with any name are rebuilt to what workers make of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel

from journal import Database, Event, append
from projections import EventEnvelope, Table, handles, projection
from projections.defining.tables import Change
from projections.testing import run_until_caught_up
from spark_projections.rebuilds.options import RebuildOptions
from spark_projections.rebuilds.rebuilding import rebuild
from tests.fixtures.projections import Happened, execute, fetchval, happen
from tests.fixtures.rebuilds import (
    ONE,
    Counts,
    fence_passes,
    in_this_process,
    schemas,
    source_in,
)

__all__ = ["in_this_process"]

ORDERED = {
    "at": "timestamptz",
    "local_at": "timestamp",
    "clock": "time",
    "span": "interval",
    "id": "uuid",
    "is_so": "boolean",
    "raw": "bytea",
    "ratio": "double precision",
    "price": "numeric(12, 2)",
    "code": "varchar(5)",
    "short": "smallint",
    "positive": "positive",
}
TYPED = Table(
    "typed",
    key=("day", "mood", "key_id", "key_code"),
    increment=("sum_short", "sum_long", "sum_price"),
    minimum=tuple(f"low_{name}" for name in ORDERED),
    maximum=tuple(f"high_{name}" for name in ORDERED),
)
PLAIN = Table("plain", key="source_id", set=("document", "tags", "mood"), source="source_id")
MAKE = [
    "CREATE TYPE mood AS ENUM ('sad', 'happy')",
    "CREATE DOMAIN positive AS int CHECK (VALUE > 0)",
    f"""
    CREATE TABLE typed (
        day date, mood mood, key_id uuid, key_code varchar(5), PRIMARY KEY (day, mood, key_id, key_code),
        sum_short smallint NOT NULL DEFAULT 0, sum_long bigint, sum_price numeric(12, 2) NOT NULL DEFAULT 0,
        {", ".join(f"low_{name} {kind}, high_{name} {kind}" for name, kind in ORDERED.items())}
    )
    """,
    "CREATE TABLE plain (source_id text PRIMARY KEY, document jsonb, tags jsonb, mood mood)",
]
ODD = Table(("odd.schema", 'We"ird Näme'), key=("source id",), increment=('n"', "select"), source="source id")


NARROW = Table("narrow", key="key", increment=("short", "price"))


class Measured(BaseModel):
    n: int
    nothing: bool = False


def values(n: int) -> dict[str, Any]:
    """Values of every type, of which the n-th is neither the smallest nor the largest."""
    turn = n * 7 % 11
    return {
        "at": datetime(2020, 1, 1 + turn, 12, tzinfo=UTC),
        "local_at": datetime(2020, 1, 1 + turn, 12),  # noqa: DTZ001 - it has none
        "clock": time(turn, 30, 0, 123456),
        "span": timedelta(days=turn, microseconds=1),
        "id": UUID(int=turn << 100),
        "is_so": turn > 5,
        "raw": bytes([255 - turn, 0, turn]),
        "ratio": (-1) ** turn * 10.0 ** (turn * 20 - 100),
        "price": Decimal(turn) / 4,
        "code": ["a", "B", "ä", "é", "z", "Z", "😀", "", "_", "aa", "Ω"][turn],
        "short": turn - 5,
        "positive": turn + 1,
    }


@projection("typed", entity_type="plane")
class Typed:
    @handles(Measured)
    def measured(self, event: Measured, envelope: EventEnvelope) -> Iterator[Change]:
        found: dict[str, Any] = dict.fromkeys(ORDERED) if event.nothing else values(event.n)
        yield TYPED.upsert(
            day=date(2020, 1, 1 + event.n % 3), mood=["sad", "happy"][event.n % 2], key_id=UUID(int=event.n % 2),
            key_code="ß", sum_short=1, sum_long=None if event.nothing else event.n, sum_price=found["price"],
            **{f"low_{name}": value for name, value in found.items()},
            **{f"high_{name}": value for name, value in found.items()},
        )  # fmt: skip
        yield PLAIN.upsert(
            source_id=envelope.source_id, document={"n": event.n, "ü": [None, "\U0001f600"]},
            tags=None if event.nothing else ["", "a,b", '"', "NULL"], mood=None if event.nothing else "sad",
        )  # fmt: skip


@projection("odd", entity_type="plane")
class Odd:
    @handles(Happened)
    def happened(self, event: Happened, envelope: EventEnvelope) -> Change:
        return ODD.upsert(**{"source id": envelope.source_id, 'n"': 1, "select": envelope.seq_nr})


async def all_rows(database: Database, *tables: str) -> list[list[str]]:
    found = "SELECT coalesce(array_agg(t::text ORDER BY t::text), '{{}}') FROM {} AS t"
    return [list(await fetchval(database, found.format(table))) for table in tables]


@pytest.mark.slow
@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("splits", [1, 5])
async def test_columns_of_every_type_are_what_workers_make(journal: Database, dsn: str, splits: int) -> None:
    for statement in MAKE:
        await execute(journal, statement)
    async with journal.transaction() as session:
        events = [Event(f"s{n % 9}", Measured(n=n, nothing=n % 4 == 3), "plane") for n in range(60)]
        await append(session, events)
    await run_until_caught_up(journal, Typed, ranges=3)
    live = await all_rows(journal, "typed", "plain")
    await execute(journal, "TRUNCATE typed, plain, projections.projections CASCADE")
    await fence_passes(journal)

    result = await rebuild(journal, dsn, Typed, RebuildOptions(splits=splits))

    assert await all_rows(journal, "typed", "plain") == live
    assert result.rows == {"plain": 9, "typed": len(live[0])}


@pytest.mark.slow
@pytest.mark.parametrize("in_place", [False, True])
async def test_names_that_need_quotes(journal: Database, dsn: str, in_place: bool) -> None:
    await execute(
        journal,
        'CREATE SCHEMA "odd.schema"; CREATE TABLE "odd.schema"."We""ird Näme" '
        '("source id" text CONSTRAINT "the ""key""" PRIMARY KEY, "n""" int NOT NULL DEFAULT 0, "select" bigint); '
        'CREATE INDEX "an Index" ON "odd.schema"."We""ird Näme" ("n""")',
    )
    await happen(journal, "a", "a", "b")
    await fence_passes(journal)

    result = await rebuild(journal, dsn, Odd, RebuildOptions(splits=1, in_place=in_place))
    await happen(journal, "a")
    await run_until_caught_up(journal, Odd)

    assert result.rows == {'We"ird Näme': 2}
    assert await all_rows(journal, '"odd.schema"."We""ird Näme"') == [["(a,3,6)", "(b,1,1)"]]


async def test_a_foreign_key_of_a_table_to_itself_refers_to_the_new_table(
    journal: Database, dsn: str
) -> None:
    await execute(
        journal,
        "ALTER TABLE counts ADD CONSTRAINT of_itself FOREIGN KEY (source_id) REFERENCES counts ON DELETE CASCADE",
    )
    await happen(journal, "a")
    await fence_passes(journal)

    await rebuild(journal, dsn, Counts, ONE)

    refers_to = """
    SELECT confrelid::regclass::text FROM pg_constraint
    WHERE conrelid = 'counts'::regclass AND conname = 'of_itself'
    """
    assert await fetchval(journal, refers_to) == "counts"


@pytest.mark.slow
async def test_a_second_rebuild_keeps_both_old_tables(journal: Database, dsn: str) -> None:
    await happen(journal, "a")
    await fence_passes(journal)
    first = await rebuild(journal, dsn, Counts, ONE)
    second = await rebuild(journal, dsn, Counts, ONE)

    assert await schemas(journal) == [first.old_schema, second.old_schema]


@projection("narrow", entity_type="plane")
class Narrow:
    @handles(Measured)
    def measured(self, event: Measured, envelope: EventEnvelope) -> Change:
        return NARROW.upsert(key="k", short=event.n, price=Decimal(event.n) / 10)


@pytest.mark.slow
@pytest.mark.usefixtures("in_this_process")
async def test_sums_of_a_part_may_be_larger_than_the_column_that_holds_all(
    journal: Database, dsn: str
) -> None:
    await execute(
        journal,
        "CREATE TABLE narrow (key text PRIMARY KEY, short smallint DEFAULT 0, price numeric(5, 1) DEFAULT 0)",
    )
    low, high = source_in(0, 300), source_in(700, 1023)
    async with journal.transaction() as session:
        numbers = [(low, 30_000), (low, 30_000), (high, -30_000), (high, -29_999)]
        await append(session, [Event(source_id, Measured(n=n), "plane") for source_id, n in numbers])
    await fence_passes(journal)

    await rebuild(journal, dsn, Narrow, RebuildOptions(splits=2))

    assert await all_rows(journal, "narrow") == [["(k,1,0.1)"]]
