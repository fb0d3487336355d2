"""The journal as Arrow batches: what is read, in which order, and what is said when it cannot be."""

from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg.conninfo import make_conninfo

from journal import (
    ALL_TYPES,
    Database,
    DatabaseError,
    DatabaseUnavailable,
    EntityTypes,
    Event,
    SchemaError,
    SliceRange,
    append_sync,
    import_events,
    slice_of,
)
from spark_projections.reading.batches import COLUMNS, SCHEMA, Reading, read_batches, statement
from spark_projections.reading.literals import literal
from spark_projections.reading.splits import slice_counts
from tests.fixtures.examples import examples
from tests.fixtures.journal import PAST, event, historic
from tests.fixtures.locks import WAITING
from tests.fixtures.projections import until

PLANES = Reading(EntityTypes(("plane",)))
ODD_TEXTS = [
    "'", "''", "\\", "\\'", "\\\\'", "'; DROP TABLE projections.events; --", "é😀\u2028", "%s", "$1", "{0}", "a\nb",
    '"', "E'", " ", "\x01", "\\x41", "\\u0041", "U&'\\0041'", "/*", "Ω" * 255,
]  # fmt: skip


def rows(dsn: str, reading: Reading) -> list[dict[str, Any]]:
    return [row for batch in read_batches(dsn, reading) for row in batch.to_pylist()]


def keys(dsn: str, reading: Reading) -> list[tuple[str, int]]:
    return [(row["source_id"], row["seq_nr"]) for row in rows(dsn, reading)]


def append(dsn: str, events: Iterable[Event]) -> None:
    with psycopg.connect(dsn) as connection:
        append_sync(connection, list(events))


def execute(dsn: str, *statements: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for one in statements:
            connection.execute(one)


def test_an_empty_journal_has_no_batches(dsn: str) -> None:
    assert list(read_batches(dsn, PLANES)) == []


def test_all_columns_come_back_as_they_were_written(dsn: str) -> None:
    number = UUID("01890a5d-ac96-774b-bcce-b302099a8057")
    payload = '{"b": 1.10, "a": "é😀", "b2": "\\u00e9"}'
    with psycopg.connect(dsn) as connection:
        append_sync(
            connection,
            [
                Event(
                    "é",
                    json.loads(payload),
                    "plane",
                    "Landed😀",
                    metadata={"m": [1, None]},
                    tags=("a,b", "'"),
                ),
                Event("é", {}, "plane", "Departed", version=7, event_id=number),
            ],
        )
        stored = connection.execute(
            "SELECT db_timestamp, payload::text FROM projections.events ORDER BY seq_nr"
        ).fetchall()

    first, second = rows(dsn, replace(PLANES, order="source"))

    assert (first["source_id"], first["slice"]) == ("é", slice_of("é"))
    assert (first["event_type"], json.loads(first["metadata"]), first["tags"]) == (
        "Landed😀",
        {"m": [1, None]},
        ["a,b", "'"],
    )
    assert [(row["db_timestamp"], row["payload"]) for row in (first, second)] == stored
    assert (second["event_id"], second["version"], second["metadata"]) == (str(number), 7, None)
    assert second["entity_type"] == "plane"


@pytest.mark.slow
def test_batches_have_the_asked_columns_in_the_asked_order(dsn: str) -> None:
    append(dsn, [event("a")])

    (batch,) = read_batches(dsn, replace(PLANES, columns=("tags", "slice", "source_id")))

    assert batch.schema == pa.schema([SCHEMA.field(name) for name in ("tags", "slice", "source_id")])


def test_another_entity_type_is_not_read(dsn: str) -> None:
    append(dsn, [event("a"), event("b", entity_type="ship")])

    assert keys(dsn, PLANES) == [("a", 1)]


@pytest.mark.slow
def test_several_types_are_read_and_every_one(dsn: str) -> None:
    append(dsn, [event("a"), event("b", entity_type="ship"), event("c", entity_type="train"), event("a")])

    both = replace(PLANES, entity_type=EntityTypes.of(("plane", "ship")), order="source")
    assert keys(dsn, both) == [("a", 1), ("a", 2), ("b", 1)]
    every = replace(PLANES, entity_type=ALL_TYPES, order="source")
    assert keys(dsn, every) == [("a", 1), ("a", 2), ("b", 1), ("c", 1)]
    assert keys(dsn, replace(every, after=("a", 1), until=datetime.now(UTC))) == [
        ("a", 2),
        ("b", 1),
        ("c", 1),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("text", ODD_TEXTS)
@pytest.mark.parametrize("conforming", ["on", "off"])
def test_any_text_is_found_by_its_own_value_alone(dsn: str, text: str, conforming: str) -> None:
    quiet = make_conninfo(
        dsn, options=f"-c standard_conforming_strings={conforming} -c escape_string_warning=off"
    )
    kind = text.replace("*", "+")  # which an entity type may not have
    append(dsn, [Event(text, {}, kind, text), Event("other", {}, kind, "other"), Event("b", {}, "b", "b")])

    assert keys(quiet, Reading(EntityTypes((kind,)), source_ids=(text, "none"))) == [(text, 1)]
    assert keys(quiet, Reading(EntityTypes((kind,)), event_types=("none", text))) == [(text, 1)]
    assert keys(
        quiet, Reading(EntityTypes((kind,)), order="source", after=(text, 0), source_ids=(text,))
    ) == [(text, 1)]


@pytest.fixture(scope="module")
def server(admin_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(admin_dsn, autocommit=True) as connection:
        yield connection


@pytest.mark.slow
@settings(max_examples=examples(200))
@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20))
def test_the_server_reads_a_literal_as_the_text_it_was_made_of(
    server: psycopg.Connection[Any], text: str
) -> None:
    found = server.execute(f"SELECT {literal(text)}, {literal((text, ''))}".encode()).fetchone()

    assert found == (text, [text, ""])


@pytest.mark.parametrize("text", ["\0", "a\0", "\ud83d"])
def test_a_text_that_no_source_can_have_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="cannot store"):
        literal(text)


@pytest.mark.slow
def test_the_encoding_of_the_environment_changes_nothing(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    append(dsn, [event("é'\\")])
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")

    assert keys(dsn, replace(PLANES, source_ids=("é'\\",))) == [("é'\\", 1)]


def test_the_order_of_sources_is_that_of_their_bytes_and_numbers(dsn: str) -> None:
    names = ["b", "a", "B", "ä", "a-", "a b", "😀", "\uff5e"]
    append(dsn, [event(name) for name in names * 12])

    assert keys(dsn, replace(PLANES, order="source")) == [
        (name, number) for name in sorted(names, key=str.encode) for number in range(1, 13)
    ]


@pytest.mark.slow
def test_reading_goes_on_behind_any_place(dsn: str) -> None:
    append(dsn, [event(name) for name in ["b", "a", "ä"] * 3])
    ordered = replace(PLANES, order="source")
    everything = keys(dsn, ordered)

    for number, place in enumerate(everything):
        assert keys(dsn, replace(ordered, after=place)) == everything[number + 1 :]


async def test_both_ends_of_a_time_range_are_read(database: Database, dsn: str) -> None:
    await import_events(database, [historic("a", number) for number in range(1, 6)])
    second = timedelta(seconds=1)

    found = keys(dsn, replace(PLANES, since=PAST + 2 * second, until=PAST + 4 * second, order="source"))

    assert found == [("a", 2), ("a", 3), ("a", 4)]


def test_both_ends_of_a_range_of_numbers_are_read(dsn: str) -> None:
    append(dsn, [event("a")] * 5)

    assert [number for _, number in keys(dsn, replace(PLANES, seq_nrs=(2, 4), order="source"))] == [2, 3, 4]


@pytest.mark.slow
def test_ranges_of_slices_share_all_events_and_have_none_twice(dsn: str) -> None:
    append(dsn, [event(f"N{number}") for number in range(200)])
    parts = [SliceRange(0, 99), SliceRange(100, 100), SliceRange(101, 1023)]

    found = [key for part in parts for key in keys(dsn, replace(PLANES, slices=part))]

    assert sorted(found) == sorted((f"N{number}", 1) for number in range(200))


def test_a_snapshot_shows_what_was_there_when_it_was_exported(dsn: str) -> None:
    append(dsn, [event("a")])
    with psycopg.connect(dsn) as holder:
        holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        row = holder.execute("SELECT pg_export_snapshot()").fetchone()
        append(dsn, [event("b")])

        found = keys(dsn, replace(PLANES, snapshot=row and row[0]))

    assert found == [("a", 1)]


def test_a_snapshot_that_is_gone_is_an_error(dsn: str) -> None:
    with pytest.raises(DatabaseError, match="snapshot"):
        rows(dsn, replace(PLANES, snapshot="00000003-0000001B-1"))


@pytest.mark.slow
def test_limits_of_the_role_do_not_end_a_long_reading(dsn: str) -> None:
    append(dsn, [event("a", {"text": "x" * 200_000}) for _ in range(50)])
    limited = make_conninfo(
        dsn, options="-c statement_timeout=300 -c idle_in_transaction_session_timeout=300"
    )
    reading = read_batches(limited, replace(PLANES, batch_bytes=1))
    first = next(reading)
    # As long as the limit lasts: the server waits for a reader that is busy elsewhere.
    execute(dsn, "SELECT pg_sleep(0.5)")

    assert first.num_rows + sum(batch.num_rows for batch in reading) == 50


@pytest.mark.slow
def test_other_settings_of_a_role_change_nothing(dsn: str) -> None:
    append(dsn, [event("a")])
    settings_of_role = (
        "-c search_path=nowhere -c default_transaction_isolation=serializable -c default_transaction_deferrable=on "
        "-c DateStyle=German -c TimeZone=Asia/Tokyo -c bytea_output=escape"
    )

    (row,) = rows(make_conninfo(dsn, options=settings_of_role), PLANES)

    assert row["db_timestamp"].utcoffset() == timedelta(0)
    assert abs(row["db_timestamp"] - datetime.now(UTC)) < timedelta(hours=1)


@pytest.mark.slow
def test_a_role_that_reads_is_enough(dsn: str, login: Callable[[str | None], str]) -> None:
    append(dsn, [event("a")])
    reader = login("projections_reader")

    assert keys(reader, PLANES) == [("a", 1)]
    assert slice_counts(reader, EntityTypes(("plane",))) == {slice_of("a"): 1}


@pytest.mark.slow
def test_a_payload_of_megabytes_is_read(dsn: str) -> None:
    text = "é" * 2_600_000
    append(dsn, [event("a", {"text": text}), event("b")])

    found = {row["source_id"]: json.loads(row["payload"]) for row in rows(dsn, PLANES)}

    assert found == {"a": {"text": text}, "b": {}}


@pytest.mark.slow
def test_the_size_of_a_batch_bounds_its_rows(dsn: str) -> None:
    append(dsn, [event("a", {"text": "x" * 1000}) for _ in range(1000)])

    sizes = [batch.num_rows for batch in read_batches(dsn, replace(PLANES, batch_bytes=50_000))]

    assert sum(sizes) == 1000
    assert max(sizes) < 100


def test_counts_are_per_slice_of_one_entity_type(dsn: str) -> None:
    append(dsn, [*[event("a")] * 3, event("b"), event("c", entity_type="ship")])

    assert slice_counts(dsn, EntityTypes(("plane",))) == {slice_of("a"): 3, slice_of("b"): 1}


def backends(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
            "AND backend_type = 'client backend'"
        ).fetchone()
        return int(row[0]) if row else 0


@pytest.mark.slow
@pytest.mark.parametrize("end", [list, lambda reading: reading.close()])
def test_the_connection_goes_with_the_iterator(dsn: str, end: Callable[[Any], object]) -> None:
    append(dsn, [event("a")] * 100)
    reading = read_batches(dsn, replace(PLANES, batch_bytes=1))
    next(reading)

    end(reading)

    while backends(dsn):
        pass


@pytest.mark.slow
def test_a_lost_connection_is_an_error_and_no_early_end(dsn: str) -> None:
    append(dsn, [event("a", {"text": "x" * 100_000}) for _ in range(200)])
    reading = read_batches(dsn, replace(PLANES, batch_bytes=1))
    next(reading)
    execute(
        dsn,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )

    with pytest.raises(DatabaseError):
        list(reading)


def test_an_address_where_nobody_listens_is_named_without_the_password() -> None:
    with pytest.raises(DatabaseUnavailable, match=r"127\.0\.0\.1") as caught:
        rows("postgresql://u:geheim@127.0.0.1:1/d", PLANES)

    assert "geheim" not in "".join(traceback.format_exception(caught.value)).replace(
        '"postgresql://u:geheim@', ""
    )


@pytest.mark.parametrize("dsn", ["postgresql://u:ge%heim@h/d", "password=geheim x"])
@pytest.mark.parametrize(
    "read", [lambda dsn: rows(dsn, PLANES), lambda dsn: slice_counts(dsn, EntityTypes(("plane",)))]
)
def test_a_dsn_that_can_not_be_read_is_not_quoted(dsn: str, read: Callable[[str], object]) -> None:
    with pytest.raises(DatabaseUnavailable, match="the DSN cannot be read") as caught:
        read(dsn)

    assert "heim" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_a_database_without_the_schema_says_how_to_install_it(empty_dsn: str) -> None:
    with pytest.raises(SchemaError, match="projections schema install"):
        rows(empty_dsn, PLANES)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"columns": ("nothing",)}, "unknown column 'nothing': the journal has source_id"),
        ({"columns": ()}, "no columns"),
        ({"after": ("a", 1)}, 'after needs order="source"'),
        ({"since": datetime(2026, 1, 1)}, "naive"),  # noqa: DTZ001 - that is the point
    ],
)
def test_a_reading_that_means_nothing_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Reading(EntityTypes(("plane",)), **values)


def plan(dsn: str, reading: Reading) -> str:
    with psycopg.connect(dsn) as connection:
        return "\n".join(row[0] for row in connection.execute(f"EXPLAIN {statement(reading)}".encode()))


@pytest.mark.slow
def test_some_sources_are_found_by_the_key_and_in_its_order(dsn: str) -> None:
    append(dsn, [event(f"N{number}") for number in range(3000)])
    execute(dsn, "ANALYZE projections.events")

    found = plan(dsn, replace(PLANES, source_ids=("N1", "N2"), after=("N1", 1), order="source"))

    assert "events_default_pkey" in found
    assert "Seq Scan" not in found


@pytest.mark.slow
def test_a_short_time_is_found_by_the_index_on_time(dsn: str) -> None:
    append(dsn, [event(f"N{number}") for number in range(3000)])
    execute(dsn, "ANALYZE projections.events")
    (at,) = {row["db_timestamp"] for row in rows(dsn, replace(PLANES, source_ids=("N1",)))}

    found = plan(dsn, replace(PLANES, since=at, until=at, columns=COLUMNS))

    assert "entity_type_db_timestamp" in found
    assert "Seq Scan" not in found


@pytest.mark.slow
async def test_what_moves_to_a_new_partition_while_a_reader_begins_is_read(
    dsn: str, database: Database
) -> None:
    await import_events(database, [historic("a", number) for number in range(1, 6)])
    day = replace(PLANES, since=PAST, until=PAST + timedelta(hours=1), order="source")
    async with database.session() as session:
        await session.begin()
        moved = await session.fetchval(
            "SELECT projections._create_partition_v1($1, $2)", PAST, PAST + timedelta(days=1)
        )
        reading = asyncio.create_task(asyncio.to_thread(keys, dsn, day))
        await until(database, f"SELECT EXISTS (SELECT FROM {WAITING})")
        await session.commit()
        found = await reading

    assert moved == 5
    assert found == [("a", number) for number in range(1, 6)]
