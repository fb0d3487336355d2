"""What SQL reads of any JSON is what the model makes of it, or the model is asked: no value is read by two rules."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from journal import EventEnvelope, InvalidPayload, decode
from projections.defining import READ_BY_MODEL, as_read
from projections.defining.sql_fields import columns_of, quote_literal, quote_name, short_name
from projections.defining.sql_rendering import _relation
from tests.fixtures.examples import examples
from tests.fixtures.meanings import json_values
from tests.fixtures.values import Values, payload, spellings, written

FIELDS = list(Values.model_fields)
ONLY_BY_MODELS = {"dotted", "shouted", "raw", "counts", "point", "either"}
_REFUSED = "(refused)"
_FUNCTION = """
CREATE FUNCTION pg_temp.{name}(p_payload text, p_version int) RETURNS text LANGUAGE plpgsql
SET timezone = 'UTC' SET datestyle = 'ISO, YMD' AS $body$
BEGIN
    RETURN (
        WITH _events AS (
            SELECT 's'::text AS source_id, 1::bigint AS seq_nr, 'Values'::text AS event_type,
                p_version::smallint AS version, p_payload::json AS payload
        )
        SELECT coalesce(r.{column}::text, '(null)') FROM ({relation}) AS r
    );
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
    RETURN {refused};
END;
$body$
"""
Read = Callable[[str, str, int], Any]


@pytest.fixture(scope="module")
def read(databases: Any, template: str) -> Iterator[Read]:
    """What SQL makes of a field of a payload; a function for each field, so that none is planned twice."""
    with databases.fresh(template) as dsn, psycopg.connect(dsn, autocommit=True) as connection:
        for n, field in enumerate(FIELDS):
            relation = _relation(Values, {field}).replace("%", "%%")
            connection.execute(
                _FUNCTION.format(
                    name=f"read_{n}", column=quote_name(short_name(field)), relation=relation,
                    refused=quote_literal(_REFUSED),
                ).encode()
            )  # fmt: skip

        def found(field: str, text: str, version: int) -> Any:
            call = f"SELECT pg_temp.read_{FIELDS.index(field)}(%s, %s)".encode()
            (value,) = connection.execute(call, (text, version)).fetchone() or (None,)
            with suppress(ArithmeticError):
                return Decimal(value) if field == "exact" else value
            return value

        yield found


def by_model(text: str) -> tuple[Values | None, str]:
    """What the model makes of a payload, and as SQL gets it; none where it is refused."""
    at = datetime(2020, 1, 1, tzinfo=UTC)
    envelope = EventEnvelope("s", 1, at, 0, UUID(int=1), "t", "Values", 1, text, None, None)
    try:
        event = decode(Values, envelope)
        return event, as_read(event, FIELDS)
    except (InvalidPayload, ValueError):
        return None, ""


def check(read: Read, field: str, spelling: str) -> None:
    compare(read, field, payload(field, spelling))


def compare(read: Read, field: str, text: str) -> None:
    found = read(field, text, 1)
    if found == _REFUSED:
        return  # then the model is asked
    event, given_to_sql = by_model(text)
    assert event is not None, f"{field}: SQL takes {text} for {found}, and the model refuses it"
    assert found == read(field, given_to_sql, READ_BY_MODEL), f"{field}: {text}"


@pytest.mark.parametrize("field", FIELDS)
def test_no_spelling_is_read_otherwise(read: Read, field: str) -> None:
    for spelling in spellings():
        check(read, field, spelling)


@settings(max_examples=examples(4_000), suppress_health_check=list(HealthCheck), deadline=None)
@given(field=st.sampled_from(FIELDS), value=json_values)
@example(field="given", value=None)
@pytest.mark.examples
def test_no_value_is_read_otherwise(read: Read, field: str, value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False)
    if "\0" not in repr(value) and "\\u0000" not in text and "\\ud" not in text:
        with suppress(UnicodeEncodeError):  # half a surrogate pair: no append takes it
            check(read, field, text)


def test_sql_reads_what_a_model_writes(read: Read) -> None:
    event = written()
    text = event.model_dump_json(by_alias=True)

    for field in FIELDS:
        found = read(field, text, 1)
        assert (found == _REFUSED) is (field in ONLY_BY_MODELS), (field, found)
        assert found in {_REFUSED, read(field, as_read(event, FIELDS), READ_BY_MODEL)}, field


@pytest.mark.parametrize("text", ["{}", "[]", "5", "null", '"{}"'])
def test_what_is_missing_has_the_default_of_the_model(read: Read, text: str) -> None:
    for field in FIELDS:
        compare(read, field, text)
        assert (read(field, text, 1) == _REFUSED) is (text != "{}" or field in ONLY_BY_MODELS)


def test_what_is_of_a_later_version_is_refused(read: Read) -> None:
    assert {read(field, written().model_dump_json(by_alias=True), 2) for field in FIELDS} == {_REFUSED}


def test_what_is_not_known_only_models_read() -> None:
    assert {name for name, column in columns_of(Values).items() if column.test is None} == ONLY_BY_MODELS
