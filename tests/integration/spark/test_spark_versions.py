"""A DataFrame shows payloads in the newest version of their models."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from pydantic import BaseModel
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from journal import Database, Event, InvalidPayload, InvalidValue, RawJson, append, event_type
from spark_projections.source.newest import NewestVersions
from spark_projections.source.options import options_of, parse_options
from spark_projections.source.source import JournalReader, SparkTable


@event_type(
    "frames.weighed",
    version=3,
    upcast={1: lambda old: {"kg": old["t"] * 1000}, 2: lambda old: {"g": old["kg"] * 1000}},
)
class Weighed(BaseModel):
    g: int


TEXT = StructType().add("seq_nr", LongType()).add("version", IntegerType()).add("payload", StringType())
STRUCT = StructType().add("payload", StructType().add("g", LongType())).add("seq_nr", LongType())
PERMISSIVE = StructType([*STRUCT.fields, StructField("payload_error", StringType())])


@pytest.fixture
async def journal(database: Database, monkeypatch: pytest.MonkeyPatch, dsn: str) -> None:
    monkeypatch.setenv("PROJECTIONS_DSN", dsn)
    payloads = [('{"t": 1}', 1), ('{"kg": 2}', 2), ('{"g": 3}', 3), ('{"g": 4 }', 4), ('{"x": 5}', 1)]
    events = [Event("s", RawJson(text), "frames", "frames.weighed", version) for text, version in payloads]
    other = Event("s", RawJson('{"g": 6}'), "frames", "frames.other", 1)
    async with database.transaction() as session:
        await append(session, [*events[:4], other, events[4]])


def rows(schema: StructType, models: Any = None, **more: Any) -> list[dict[str, Any]]:
    given = options_of(
        entity_type="frames", models=NewestVersions.of([Weighed] if models is None else models), **more
    )
    options = parse_options(given)
    reader = JournalReader(options, SparkTable(schema, options.mode, options.models))
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return sorted(pa.Table.from_batches(batches).to_pylist(), key=lambda row: row["seq_nr"])


def test_payloads_and_versions_are_the_newest(journal: None) -> None:
    found = rows(TEXT, seq_nrs=(1, 5))
    assert [(row["version"], row["payload"]) for row in found] == [
        (3, '{"g":1000000}'), (3, '{"g":2000}'), (3, '{"g": 3}'), (4, '{"g": 4 }'), (1, '{"g": 6}'),
    ]  # fmt: skip
    assert [row["payload"]["g"] for row in rows(STRUCT, seq_nrs=(1, 5))] == [1_000_000, 2000, 3, 4, 6]
    assert [row["version"] for row in rows(TEXT, models=())] == [1, 2, 3, 4, 1, 1]


def test_a_payload_that_cannot_be_converted_is_an_error_or_null(journal: None) -> None:
    with pytest.raises(InvalidPayload, match="seq_nr 6: upcast from version 1 failed: KeyError"):
        rows(TEXT)
    found = rows(PERMISSIVE, mode="permissive")
    assert [row["payload"] and row["payload"]["g"] for row in found] == [1_000_000, 2000, 3, 4, 6, None]
    assert [row["payload_error"] for row in found[:-1]] == [None] * 5
    assert "upcast from version 1 failed" in found[-1]["payload_error"]


@pytest.mark.parametrize(
    "place",
    ["__main__:Weighed", "tests.integration.spark.test_spark_versions:Nobody", "no_such_module:Weighed"],
)
def test_a_model_that_cannot_be_imported_is_named_when_it_is_needed(journal: None, place: str) -> None:
    options = parse_options({"entitytype": "frames", "models": json.dumps({"frames.weighed": [3, place]})})
    reader = JournalReader(options, SparkTable(TEXT, newest=options.models))
    with pytest.raises(InvalidValue, match=f"{place}, which cannot be imported here"):
        [*(batch for part in reader.partitions() for batch in reader.read(part))]
    current = {"frames.weighed": [1, place]}
    assert parse_options({"entitytype": "frames", "models": json.dumps(current)}).models.versions == (1,)


def test_all_declared_models_are_converted_by_default() -> None:
    assert "frames.weighed" in NewestVersions.of(None).names
    assert NewestVersions.of(()).text is None
