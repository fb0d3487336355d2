"""Values of JSON files are stored as they are written, and what is spilled does not outlast its process for long."""

from __future__ import annotations

import os
import tempfile
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from journal import Database
from spark_projections.backfill.backfill import Backfilled
from spark_projections.backfill.spill import spill_directory
from tests.fixtures.archive import killed
from tests.fixtures.backfill import START, load, record, sources, write
from tests.fixtures.journal import stored

_VALUES = [
    '{"n": 123456789012345678901234567890.000, "m": 0.12345678901234567890, "e": 1E40, "z": -0.0}',
    '{ "b" : [1,  "\\u00fc", "}{,:\\" "], "a": {}, "b": 2}',
    "[1.10, 1e2 , [[ ]]]",
    "12345678901234567890.50",
    "-7",
    "true",
]


@pytest.mark.daily(2)
@pytest.mark.parametrize("text", _VALUES)
async def test_value_in_a_json_file_is_stored_as_it_is_written(
    database: Database, dsn: str, tmp_path: Path, text: str
) -> None:
    path = tmp_path / "a.json"
    path.write_text(
        f' {{"source_id" : "N\\u0031","body":{text} , "metadata":\t{text},"tags":[], "event_type":"L",'
        ' "db_timestamp": "2020-01-01T00:00:00Z", "seq_nr": 1}  \n'
    )

    first = load(dsn, path, columns={"payload": "body"})
    again = load(dsn, path, columns={"payload": "body"})

    (found,) = await stored(database, "N1")
    assert (found.payload_json, found.metadata_json) == (text, text)
    assert (first, again) == (Backfilled(1, 0, 1), Backfilled(0, 1, 1))


async def test_values_of_a_parquet_file_keep_their_digits_and_maps_are_objects(
    database: Database, dsn: str, tmp_path: Path
) -> None:
    amounts = pa.list_(pa.decimal128(22, 3))
    item = pa.map_(
        pa.string(), pa.struct([("price", pa.decimal128(4, 2)), ("at", pa.timestamp("us", "UTC"))])
    )
    values = {
        "source_id": ["N1"],
        "event_type": ["Landed"],
        "db_timestamp": [START],
        "payload": pa.array(
            [{
                "amounts": [Decimal("1234567890123456789.500"), None],
                "items": [('a"b', {"price": Decimal("1.10"), "at": START})],
            }],
            pa.struct([("amounts", amounts), ("items", item), ("none", pa.bool_())]),
        ),
        "metadata": pa.array([[("by", "me"), ("for", None)]], pa.map_(pa.string(), pa.string())),
    }  # fmt: skip
    pq.write_table(pa.table(values), tmp_path / "a.parquet")

    load(dsn, tmp_path / "a.parquet")

    (found,) = await stored(database, "N1")
    assert found.payload_json == (
        '{"amounts":[1234567890123456789.500,null],'
        '"items":{"a\\"b":{"price":1.10,"at":"2020-01-01T00:00:00Z"}},"none":null}'
    )
    assert found.metadata_json == '{"by":"me","for":null}'


async def test_null_in_a_json_file_is_no_value(database: Database, dsn: str, tmp_path: Path) -> None:
    load(dsn, write(tmp_path / "a.json", [record(payload={"a": 1}, metadata=None)]))

    (found,) = await stored(database, "N1")
    assert (found.payload_json, found.metadata_json) == ('{"a": 1}', None)


@pytest.mark.slow
async def test_what_a_killed_backfill_has_spilled_is_removed_by_the_next_one(
    database: Database, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spills = tmp_path / "spills"
    spills.mkdir()
    monkeypatch.setenv("TMPDIR", str(spills))
    monkeypatch.setattr(tempfile, "tempdir", None)
    path = write(tmp_path / "a.csv", sources(3, 20))
    killed(
        "from spark_projections.backfill import backfill as module\n"
        "from spark_projections.backfill.mapping import Mapped\n"
        "module._import_bucket = lambda *_: kill()\n"
        "module.backfill(sys.argv[1], [Path(sys.argv[2])], Mapped('plane', 'csv'), processes=1)",
        dsn,
        path,
    )
    left = [each.name for each in spills.rglob("*") if each.is_file()]

    with spill_directory() as other:
        done = load(dsn, path)
        others = list(spills.iterdir())

    assert len(left) == 2
    assert done == Backfilled(60, 0, 3)
    assert (others, list(spills.iterdir())) == ([other], [])


def test_what_another_user_has_put_among_the_spills_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("spark_projections.backfill.spill.os.getuid", lambda: -1)
    theirs = tmp_path / "projections-backfill-theirs"
    theirs.mkdir()
    os.mkfifo(theirs / "_lock")  # who opens it waits for a writer

    with spill_directory() as mine:
        found = set(tmp_path.iterdir())

    assert found == {theirs, mine}
    assert list(tmp_path.iterdir()) == [theirs]
