"""Options of the data source: what they take, and what they say about what they do not take."""

from __future__ import annotations

import traceback
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from journal import ALL_TYPES, EntityTypes, InvalidValue, SliceRange
from spark_projections.reading.batches import COLUMNS
from spark_projections.source.options import options_of, parse_options

REFUSED = {
    "entitytype": ["*", "plane,ship", "[", "[]", "[1]", '["plane", "plane"]', '["*"]', '[""]', "\0"],
    "alltypes": ["true", "false"],
    "slices": ["0-1024", "5-3", "a", "", "-1"],
    "splits": ["0", "-1", "1.5", "many"],
    "since": ["yesterday", "2026-01-31T00:00:00"],
    "until": ["2026-13-01T00:00:00Z"],
    "eventtypes": ["Landed", "[]", "[1]", '{"a": 1}'],
    "sourceids": ["a,b", '"a"'],
    "columns": ["payloads", "seq_nr,seq_nr", ""],
    "snapshot": ["export"],
    "wait": ["-1", "soon", "nan", "inf"],
    "seqnrs": ["0-3", "5-3", "all", "1-9223372036854775808"],
    "maxrows": ["0", "all"],
    "onimport": ["ignore"],
    "mode": ["dropmalformed", ""],
    "dsn": ["postgresql://u:%zz@h/d", "host"],
}


def test_only_the_entity_type_is_needed() -> None:
    options = parse_options({"entitytype": "plane"})

    assert options.reading.entity_type == EntityTypes(("plane",))
    assert options.reading.columns == COLUMNS
    assert options.horizon


def test_every_option_is_read() -> None:
    options = parse_options(
        {
            "dsn": "host=h user=u",
            "entitytype": "plane",
            "slices": "0-255",
            "splits": "4",
            "since": "2026-01-01T00:00:00Z",
            "until": "2026-02-01T01:00:00+01:00",
            "eventtypes": '["Landed"]',
            "sourceids": '["a,b", "c\\""]',
            "columns": "seq_nr, source_id",
            "payloadschema": "n INT",
            "snapshot": "00000003-0000001B-1",
            "wait": "1.5",
            "seqnrs": "1-50",
            "maxrows": "100",
            "onimport": "skip",
            "mode": "PERMISSIVE",
        }
    )

    reading = options.reading
    assert (options.dsn, options.splits, options.payload_schema) == ("host=h user=u", 4, "n INT")
    assert (options.wait, options.max_rows) == (timedelta(seconds=1.5), 100)
    assert (options.on_import, options.horizon, options.mode) == ("skip", False, "permissive")
    assert (reading.entity_type, reading.slices) == (EntityTypes(("plane",)), SliceRange(0, 255))
    assert (reading.since, reading.until) == (
        datetime(2026, 1, 1, tzinfo=UTC),
        datetime(2026, 2, 1, tzinfo=UTC),
    )
    assert (reading.event_types, reading.source_ids) == (("Landed",), ("a,b", 'c"'))
    assert (reading.columns, reading.snapshot) == (("seq_nr", "source_id"), "00000003-0000001B-1")
    assert reading.seq_nrs == (1, 50)


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in REFUSED for value in REFUSED[name]])
def test_a_value_that_can_not_be_used_is_refused_by_the_name_of_its_option(name: str, value: str) -> None:
    with pytest.raises(InvalidValue, match=name):
        parse_options({"entitytype": "plane", name: value})


def test_a_missing_entity_type_is_refused() -> None:
    with pytest.raises(InvalidValue, match="entitytype is missing"):
        parse_options({"slices": "0-255"})


@pytest.mark.parametrize(
    ("given", "types"),
    [
        ("plane", EntityTypes.of("plane")),
        (("b", "a"), EntityTypes.of(("a", "b"))),
        (("a,b",), EntityTypes(("a,b",))),
        (("[",), EntityTypes(("[",))),
        (ALL_TYPES, ALL_TYPES),
    ],
)
def test_one_type_several_or_all_are_read_as_they_were_written(given: Any, types: EntityTypes) -> None:
    assert parse_options(options_of(entity_type=given)).reading.entity_type == types


def test_several_types_are_a_json_list() -> None:
    options = parse_options({"entitytype": '["ship", "plane"]'})

    assert options.reading.entity_type == EntityTypes(("plane", "ship"))


def test_what_is_no_entity_type_is_refused_as_a_value() -> None:
    with pytest.raises(InvalidValue, match="entity_type names 'a' twice"):
        options_of(entity_type=["a", "a"])


def test_an_unknown_option_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(InvalidValue, match=r"'slice'.*slices"):
        parse_options({"entitytype": "plane", "slice": "3"})


@pytest.mark.parametrize(
    "dsn", ["postgresql://u:geheim@h/d", "host=h password=geheim", "postgresql://h/d?password=geheim"]
)
def test_a_dsn_with_a_password_is_refused_without_quoting_it(dsn: str) -> None:
    with pytest.raises(InvalidValue, match=r"PROJECTIONS_DSN.*PGPASSFILE") as caught:
        parse_options({"entitytype": "plane", "dsn": dsn})

    assert "geheim" not in "".join(traceback.format_exception(caught.value, chain=True)).replace(dsn, "")
    assert "geheim" not in str(caught.value)


def test_without_the_option_the_environment_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROJECTIONS_DSN", "postgresql://u:geheim@h/d")

    assert parse_options({"entitytype": "plane"}).address() == "postgresql://u:geheim@h/d"


def test_without_any_dsn_it_is_said_where_to_set_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROJECTIONS_DSN", raising=False)

    with pytest.raises(InvalidValue, match="PROJECTIONS_DSN in the environment of the driver and"):
        parse_options({"entitytype": "plane"}).address()
