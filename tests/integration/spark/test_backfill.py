"""History from files into the journal."""

from __future__ import annotations

import resource
import signal
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from journal import Database, append
from spark_projections.backfill.backfill import Backfilled, backfill
from spark_projections.backfill.formats import BadRow
from spark_projections.backfill.mapping import Mapped
from spark_projections.engine.parallel import PartFailed
from tests.fixtures.backfill import PAYLOAD, START, load, record, sources, write
from tests.fixtures.journal import event, stored
from tests.fixtures.projections import EFFECTS, each_once, effects, execute, recording, running, until_effects

ENDINGS = pytest.mark.parametrize("ending", ["parquet", "csv", "json"])


@pytest.mark.slow
@ENDINGS
async def test_all_columns_are_stored_as_they_are_in_the_file(
    database: Database, dsn: str, tmp_path: Path, ending: str
) -> None:
    extra = {"seq_nr": 1, "version": 3, "metadata": '{"by":  null}', "tags": ["a,b", 'q"uote']}
    path = write(tmp_path / f"a.{ending}", [record(**extra)])

    done = load(dsn, path)

    (found,) = await stored(database, "N1")
    assert done == Backfilled(1, 0, 1)
    assert (found.payload_json, found.metadata_json, found.tags) == (
        PAYLOAD,
        extra["metadata"],
        extra["tags"],
    )
    assert (found.seq_nr, found.version, found.event_type) == (1, 3, "Landed")
    assert (found.db_timestamp, found.entity_type) == (START + timedelta(hours=1), "plane")


@pytest.mark.slow
@ENDINGS
async def test_events_without_a_number_are_numbered_by_their_times_over_all_files(
    database: Database, dsn: str, tmp_path: Path, ending: str
) -> None:
    records = sources(5, 40)
    half = len(records) // 2
    files = [
        write(tmp_path / f"{n}.{ending}", part) for n, part in enumerate((records[:half], records[half:]))
    ]

    done = load(dsn, *files, chunk=17)

    assert done == Backfilled(200, 0, 5)
    for n in range(5):
        found = await stored(database, f"N{n}")
        assert [e.seq_nr for e in found] == list(range(1, 41))
        assert [e.db_timestamp for e in found] == [START + timedelta(hours=h) for h in range(1, 41)]


async def test_source_goes_on_behind_what_the_journal_has(
    database: Database, dsn: str, tmp_path: Path
) -> None:
    load(dsn, write(tmp_path / "a.csv", [record(number=n) for n in (1, 2)]))

    done = load(dsn, write(tmp_path / "b.json", [record(number=n) for n in (3, 4)]))

    assert done == Backfilled(2, 0, 1)
    assert [e.seq_nr for e in await stored(database, "N1")] == [1, 2, 3, 4]


@pytest.mark.slow
@ENDINGS
@pytest.mark.parametrize("numbered", [False, True], ids=["by time", "numbered"])
async def test_running_again_stores_nothing_twice(
    database: Database, dsn: str, tmp_path: Path, ending: str, numbered: bool
) -> None:
    records = [
        record(f"N{n}", number, tags=["x"], metadata="{}", **({"seq_nr": number} if numbered else {}))
        for number in range(1, 21)
        for n in range(4)
    ]
    path = write(tmp_path / f"a.{ending}", records)
    load(dsn, path)

    assert load(dsn, path) == Backfilled(0, 80, 4)
    assert [e.seq_nr for e in await stored(database, "N0")] == list(range(1, 21))


@pytest.mark.slow
@pytest.mark.parametrize("numbered", [False, True], ids=["by time", "numbered"])
async def test_run_after_a_break_goes_on_where_it_stopped(
    database: Database, dsn: str, tmp_path: Path, numbered: bool
) -> None:
    records = [
        record(f"N{n}", number, **({"seq_nr": number} if numbered else {}))
        for number in range(1, 31)
        for n in range(4)
    ]
    future = datetime.now(UTC) + timedelta(days=1)
    last = record("N3", db_timestamp=future, **({"seq_nr": 31} if numbered else {}))
    path = write(tmp_path / "a.parquet", [*records, last])
    with pytest.raises(PartFailed, match=r"a\.parquet, row 121: source 'N3', seq_nr 31: .* is in the future"):
        load(dsn, path, chunk=25)
    path = write(tmp_path / "a.parquet", records)

    done = load(dsn, path, chunk=25)

    assert done.skipped == 100
    assert done == Backfilled(20, 100, 4)
    for n in range(4):
        assert [e.seq_nr for e in await stored(database, f"N{n}")] == list(range(1, 31))


_OTHER = {
    "payload": {"payload": '{"z": 1}'},
    "event_type": {"event_type": "Other"},
    "version": {"version": 2},
    "metadata": {"metadata": "{}"},
    "tags": {"tags": ["y"]},
    "event_id": {"event_id": "018cc251-f400-7000-8000-000000000001"},
}


@pytest.mark.slow
@pytest.mark.parametrize("values", _OTHER.values(), ids=_OTHER)
@pytest.mark.parametrize("numbered", [{}, {"seq_nr": 1}], ids=["by time", "numbered"])
async def test_other_content_at_a_stored_number_is_refused_by_name(
    database: Database, dsn: str, tmp_path: Path, values: dict[str, Any], numbered: dict[str, int]
) -> None:
    load(dsn, write(tmp_path / "a.parquet", [record(**numbered)]))
    path = write(tmp_path / "b.parquet", [record(**numbered | values)])

    with pytest.raises(
        PartFailed,
        match=rf"b\.parquet, row 1: source 'N1', seq_nr 1 is stored with other content \({next(iter(values))}\)",
    ):
        load(dsn, path)


async def test_event_between_stored_ones_is_refused(database: Database, dsn: str, tmp_path: Path) -> None:
    load(dsn, write(tmp_path / "a.csv", [record(number=1), record(number=3)]))

    with pytest.raises(PartFailed, match="history can only go on behind what is stored"):
        load(dsn, write(tmp_path / "b.csv", [record(number=2)]))


_BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no source": (record(source_id=""), r"row 2: no source_id: column 'source_id' is empty"),
    "naive time": (
        record("N2", db_timestamp="2020-01-01T00:00:00"),
        r"row 2 \(source 'N2'\): .* is naive: give it",
    ),
    "no time": (record("N2", db_timestamp="yesterday"), "db_timestamp 'yesterday' is not an ISO time"),
    "no JSON": (record("N2", payload="{a: 1}"), r"row 2: source 'N2': payload is not JSON"),
    "no JSON in metadata": (record("N2", metadata="{"), "metadata is not JSON"),
    "NaN": (record("N2", payload='{"a": NaN}'), "payload is not JSON"),
    "long integer": (
        record("N2", payload=f'{{"a": {"9" * 5000}}}'),
        r"row 2: source 'N2': payload is not JSON: integer 9+… has 5,000 digits, more than the 4,300",
    ),
    "long number": (record("N2", seq_nr="9" * 5000), "seq_nr must be a whole number from 1 on"),
    "no number": (record("N2", seq_nr="one"), "seq_nr must be a whole number from 1 on"),
    "no version": (record("N2", version="0"), "version must be a whole number from 1 on"),
    "no UUID": (record("N2", event_id="7"), "event_id '7' is not a UUID"),
    "no tags": (record("N2", tags="x,y"), "tags must be a JSON list of texts"),
    "long id": (record("N" * 256), "source_id must have 1 to 255 characters"),
    "before 1970": (
        record("N2", db_timestamp="1960-01-01T00:00:00Z"),
        "is not between the years 1970 and 9998",
    ),
    "other type": (record("N2", entity_type="ship"), "it is of entity type 'ship', not 'plane'"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("wrong", "message"), _BAD.values(), ids=_BAD)
@pytest.mark.parametrize("ending", ["csv", "json"])
async def test_bad_row_is_named_with_its_file_and_imports_nothing(
    database: Database, dsn: str, tmp_path: Path, *, wrong: dict[str, Any], message: str, ending: str
) -> None:
    good = dict.fromkeys(wrong) | record()
    path = write(tmp_path / f"a.{ending}", [good, wrong])

    with pytest.raises(PartFailed, match=message) as caught:
        load(dsn, path)

    assert str(path) in str(caught.value)
    assert await stored(database, "N1") == []


async def test_naive_timestamps_of_a_parquet_file_are_refused(dsn: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", [record(db_timestamp=datetime(2020, 1, 1))])  # noqa: DTZ001 - the point

    with pytest.raises(BadRow, match=r"a\.parquet: column 'db_timestamp' has naive timestamps"):
        load(dsn, path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", '{"source_id": "N1"', "row 1: .*every line must be one JSON object"),
        ("a.json", "[1]\n", "row 1: it is not a JSON object"),
        (
            "a.json",
            f'{{"source_id":"N1","event_type":"A","db_timestamp":"2020-01-01T00:00:00Z","payload":[{"9" * 5000}]}}',
            "row 1: source 'N1': payload is not JSON: integer 9+… has 5,000 digits, more than the 4,300",
        ),
        ("a.json", '{"payload": ' + "[" * 100_000, "row 1: it is nested too deeply"),
        (
            "a.csv",
            "source_id,event_type,payload,db_timestamp\nN1,Landed\n",
            "row 1: it has not as many fields",
        ),
        ("a.csv", "", "no column 'source_id' for source_id: say which it is with --map COLUMN=source_id"),
        ("a.csv", b"source_id,event_type,payload,db_timestamp\n\xff,,,\n", "cannot be read"),
        ("a.parquet", "no parquet", "cannot be read"),
    ],
)
async def test_file_that_is_not_of_its_format_is_named(
    dsn: str, tmp_path: Path, name: str, content: str | bytes, message: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())

    with pytest.raises((BadRow, PartFailed), match=message) as caught:
        load(dsn, path)

    assert str(path) in str(caught.value)


async def test_columns_of_other_names_are_mapped(database: Database, dsn: str, tmp_path: Path) -> None:
    rows = [{"tail": "N1", "what": "Landed", "body": PAYLOAD, "at": START}]

    load(
        dsn,
        write(tmp_path / "a.parquet", rows),
        columns={"source_id": "tail", "event_type": "what", "payload": "body", "db_timestamp": "at"},
    )

    assert [e.db_timestamp for e in await stored(database, "N1")] == [START]


async def test_values_in_a_parquet_file_become_json(database: Database, dsn: str, tmp_path: Path) -> None:
    load(dsn, write(tmp_path / "a.parquet", [record(payload={"b": [1], "c": "ü"}, metadata={"x": True})]))

    (found,) = await stored(database, "N1")
    assert (found.payload_json, found.metadata_json) == ('{"b":[1],"c":"ü"}', '{"x":true}')


_ORDER = {
    "same number twice": ([{"seq_nr": 1}, {"seq_nr": 1}], "seq_nr 1 is in .*, row 1 as well"),
    "same time twice": (
        [{}, {"db_timestamp": START + timedelta(hours=1)}],
        "times of a source must increase",
    ),
    "time that falls": (
        [{"seq_nr": 1}, {"seq_nr": 2, "db_timestamp": START}],
        "seq_nr 2: db_timestamp .* is not after",
    ),
    "a number is missing": ([{"seq_nr": 1}, {"seq_nr": 3}], "has seq_nr 3 where 2 is due: the rows between"),
    "some without number": ([{"seq_nr": 1}, {"seq_nr": None}], "has rows with and without a seq_nr"),
}


@pytest.mark.daily(2)
@pytest.mark.parametrize(("rows", "message"), _ORDER.values(), ids=_ORDER)
async def test_rows_of_a_source_that_do_not_follow_one_another_are_named(
    database: Database, dsn: str, tmp_path: Path, rows: list[dict[str, Any]], message: str
) -> None:
    path = write(tmp_path / "a.parquet", [record(number=n, **row) for n, row in enumerate(rows, 1)])

    with pytest.raises(PartFailed, match=message):
        load(dsn, path)

    assert await stored(database, "N1") == []


async def test_source_of_another_type_is_refused(database: Database, dsn: str, tmp_path: Path) -> None:
    async with database.transaction() as session:
        await append(session, [event("N1", entity_type="ship")])

    with pytest.raises(PartFailed, match="source 'N1' is of entity type 'ship' in the journal, not 'plane'"):
        load(dsn, write(tmp_path / "a.csv", [record()]))


async def test_dry_run_checks_everything_and_imports_nothing(
    database: Database, dsn: str, tmp_path: Path
) -> None:
    load(dsn, write(tmp_path / "a.csv", [record(number=1)]))
    path = write(tmp_path / "b.csv", [*(record(number=n) for n in range(1, 31)), record("N2")])

    done = load(dsn, path, chunk=7, dry_run=True)

    assert done == Backfilled(30, 1, 2)
    assert len(await stored(database, "N1")) == 1
    with pytest.raises(PartFailed, match="where 2 is due"):
        load(
            dsn,
            write(tmp_path / "c.csv", [record("N9", 1, seq_nr=1), record("N9", 3, seq_nr=3)]),
            dry_run=True,
        )


@pytest.mark.slow
async def test_processes_import_the_same_as_one(database: Database, dsn: str, tmp_path: Path) -> None:
    files = [write(tmp_path / f"{n}.parquet", sources(7, 20)[n::3]) for n in range(3)]

    done = load(dsn, *files, processes=2)

    assert done == Backfilled(140, 0, 7)
    assert [e.seq_nr for e in await stored(database, "N6")] == list(range(1, 21))


async def test_event_id_is_kept(database: Database, dsn: str, tmp_path: Path) -> None:
    event_id = UUID(int=(int((START + timedelta(hours=1)).timestamp() * 1000) << 80) | (7 << 76) | (2 << 62))

    load(dsn, write(tmp_path / "a.csv", [record(event_id=str(event_id))]))

    assert [e.event_id for e in await stored(database, "N1")] == [event_id]


@pytest.mark.slow
async def test_live_projection_handles_what_was_backfilled(
    database: Database, dsn: str, tmp_path: Path
) -> None:
    await execute(database, EFFECTS)
    path = write(tmp_path / "a.csv", sources(3, 20, event_type="Happened", payload="{}"))
    async with running(database, recording()):
        async with database.transaction() as session:
            await append(session, [event("X", event_type="Happened")])
        await until_effects(database, 1)
        load(dsn, path)
        await until_effects(database, 61)

    each_once(await effects(database), N0=20, N1=20, N2=20, X=1)


def test_chunk_below_one_is_refused(dsn: str) -> None:
    with pytest.raises(ValueError, match="chunk must be at least 1, not 0"):
        backfill(dsn, [], Mapped("plane", "csv"), chunk=0)


async def test_event_id_that_is_used_already_is_refused_with_the_file(
    database: Database, dsn: str, tmp_path: Path
) -> None:
    event_id = str(UUID(int=7))
    path = write(tmp_path / "a.csv", [record("N1", event_id=event_id), record("N2", event_id=event_id)])

    with pytest.raises(PartFailed, match=rf"event_id {event_id} is used already \(in .*a\.csv\)"):
        load(dsn, path)


async def test_full_disk_for_temporary_files_is_said(database: Database, dsn: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", [record()])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        with pytest.raises(PartFailed, match=r"temporary files cannot be written to .*: File too large"):
            load(dsn, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)

    assert await stored(database, "N1") == []


async def test_writer_may_load_history(
    database: Database, dsn: str, tmp_path: Path, login: Callable[[str | None], str]
) -> None:
    path = write(tmp_path / "a.csv", sources(2, 3))
    writer = login("projections_writer")

    first = load(writer, path)
    again = load(writer, path)

    assert (first, again) == (Backfilled(6, 0, 2), Backfilled(0, 6, 2))
