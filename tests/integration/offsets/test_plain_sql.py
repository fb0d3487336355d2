"""A worker that is nothing but calls of the public SQL functions, as docs/reference/sql.md describes them."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from journal import Database, Event, append
from tests.fixtures.projections import EFFECTS, Happened, caught_up, effects, execute, recording

HEARTBEAT = """
SELECT * FROM projections.heartbeat_v1(
    %s, 'host', 1, '10 seconds', ARRAY[%s], ARRAY['p'], ARRAY[1], %s, %s, %s, ARRAY['{plane}']
)
"""
PAGE = "SELECT * FROM projections.read_events_by_slices_v1(ARRAY['plane'], %s, %s, %s, -1, '', 0, %s, 100)"


class Worker:
    """Runs one projection, in one range at a time."""

    def __init__(self, dsn: str, name: str, ranges: str = "{0}") -> None:
        self.connection = psycopg.connect(dsn, autocommit=True, row_factory=dict_row)
        self.name, self.beats = name, 0
        self.number = self.one(
            "SELECT projections.register_projection_v1('p', ARRAY['plane'], %s::integer[]) AS n", ranges
        )["n"]

    def one(self, query: str, *values: Any) -> dict[str, Any]:
        row = self.connection.execute(query, values).fetchone()
        assert row is not None
        return row

    def heartbeat(self, *, leaving: bool = False) -> list[dict[str, Any]]:
        """What is its own, a dictionary for each range."""
        answer = self.one(HEARTBEAT, self.name, self.number, leaving, self.beats, self.beats + 1)
        self.beats += 1
        names = ("min_slices", "max_slices", "epochs", "horizons", "import_ids", "kept", "commits")
        columns = zip(*(answer[name] or [] for name in names), strict=True)
        return [dict(zip(names, column, strict=True)) for column in columns]

    def work(self, one: dict[str, Any]) -> None:
        """Handle what there is for a range."""
        now = self.one("SELECT clock_timestamp() AS now")["now"]
        held = self.one("SELECT min(started_at) AS since FROM projections.writers_in_flight_v1()")["since"]
        until = min(now, held or now)
        page = self.connection.execute(
            PAGE, (one["min_slices"], one["max_slices"], one["horizons"], until)
        ).fetchall()
        sources = [row["source_id"] for row in page]
        offsets = {
            row["source_id"]: row["seq_nr"]
            for row in self.connection.execute(
                "SELECT * FROM projections.read_offsets_v1(%s, %s)", (self.number, sources)
            )
        }
        new = [row for row in page if row["seq_nr"] > offsets.get(row["source_id"], 0)]
        last = {row["source_id"]: row for row in new}
        known = [source for source in last if source in offsets]
        order = [*known, *(source for source in last if source not in offsets)]
        with self.connection.transaction():
            self.one("SELECT set_config('projections.batch', 'b', TRUE)")
            for row in new:
                self.connection.execute(
                    "INSERT INTO effects (source_id, seq_nr) VALUES (%s, %s)",
                    (row["source_id"], row["seq_nr"]),
                )
            self.one(
                "SELECT projections.save_offsets_v1(%s, %s, %s, %s, %s, %s, NULL, NULL, 'b', %s, %s, %s,"
                " %s::smallint[], %s::bigint[], %s, %s, %s)",
                self.number, one["min_slices"], one["epochs"], self.name, one["commits"], self.beats, until,
                one["import_ids"], order, [last[source]["slice"] for source in order[len(known) :]],
                [offsets[source] for source in known], [last[source]["seq_nr"] for source in order],
                [last[source]["db_timestamp"] for source in order], len(new),
            )  # fmt: skip
        one["commits"] += 1
        one["horizons"] = until

    def release(self, one: dict[str, Any]) -> bool:
        """Give a range back."""
        return bool(
            self.one(
                "SELECT projections.release_range_v1(%s, %s, %s, %s, %s, %s, NULL, NULL, %s, %s) AS done",
                self.number, one["min_slices"], one["epochs"], self.name, one["commits"], self.beats,
                one["horizons"], one["import_ids"],
            )["done"]
        )  # fmt: skip


@pytest.fixture(autouse=True)
async def table(database: Database) -> None:
    await execute(database, EFFECTS)


async def write(database: Database, *source_ids: str) -> None:
    async with database.transaction() as session:
        await append(session, [Event(source_id, Happened(), "plane") for source_id in source_ids])


async def test_it_handles_each_event_once_and_hands_over_to_workers_of_the_library(
    dsn: str, database: Database
) -> None:
    await write(database, "a", "b", "a")
    worker = Worker(dsn, "by hand")
    (mine,) = worker.heartbeat()
    worker.work(mine)
    worker.work(mine)  # nothing is new
    await write(database, "a", "c")
    worker.work(mine)
    assert sorted(await effects(database)) == [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("c", 1)]

    worker.heartbeat(leaving=True)
    assert worker.release(mine)
    worker.one("SELECT projections.leave_v1(%s)", worker.name)
    await write(database, "b")
    await caught_up(database, recording())

    assert sorted(await effects(database))[3:] == [("b", 1), ("b", 2), ("c", 1)]
    with pytest.raises(psycopg.Error, match="is no longer held with epoch") as lost:
        worker.work(mine)
    assert lost.value.sqlstate == "PJ010"
    worker.connection.close()


async def test_it_shares_the_ranges_with_others(dsn: str) -> None:
    first, second = Worker(dsn, "first", "{0,512}"), Worker(dsn, "second", "{0,512}")
    assert [one["min_slices"] for one in first.heartbeat()] == [0, 512]
    second.heartbeat()

    given_up = [one for one in first.heartbeat() if not one["kept"]]
    assert len(given_up) == 1
    assert first.release(given_up[0])

    assert [one["min_slices"] for one in second.heartbeat()] == [given_up[0]["min_slices"]]
    first.connection.close()
    second.connection.close()
