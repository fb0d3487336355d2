"""Payloads and events: what becomes JSON, what is refused, and how old versions are lifted."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, Field

from journal import (
    EventEnvelope,
    InvalidEvent,
    InvalidPayload,
    RawJson,
    UnknownEventType,
    decode,
    decoder,
    event_type,
    event_type_of,
    newest_json,
    upcast_json,
)
from journal.appending import event_row
from journal.event_types import EventType
from journal.payload import MAX_PAYLOAD_BYTES, encode
from tests.fixtures.journal import event


class Landed(BaseModel):
    carrier: str
    arr_delay: float | None = None


class Trip(BaseModel):
    legs: list[Landed] = []


@event_type(
    "flight-left",
    version=3,
    upcast={1: lambda old: {"carrier": old["c"]}, 2: lambda old: {**old, "gate": "?"}},
)
class Left(BaseModel):
    carrier: str
    gate: str = Field(max_length=3)


def _stored(payload: Any, version: int = 1, event_type: str = "Landed") -> EventEnvelope:
    return EventEnvelope(
        "N14228", 7, datetime(2013, 1, 1, tzinfo=UTC), 3, UUID(int=1), "plane", event_type, version,
        payload if isinstance(payload, str) else json.dumps(payload), None, None,
    )  # fmt: skip


# --- encoding


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Landed(carrier="UA", arr_delay=1), '{"carrier":"UA","arr_delay":1.0}'),
        (Landed(carrier="ä😀"), '{"carrier":"ä😀","arr_delay":null}'),
        (
            {"at": datetime(2013, 1, 1, tzinfo=UTC), "sum": Decimal("1.10")},
            '{"at":"2013-01-01T00:00:00Z","sum":"1.10"}',
        ),
        (None, "null"),
        ([], "[]"),
        ({"word": "NaN Infinity null \\u0000"}, '{"word":"NaN Infinity null \\\\u0000"}'),
        (Decimal("NaN"), '"NaN"'),
        (RawJson(' {"b" : 1.0,"a":1e3} '), ' {"b" : 1.0,"a":1e3} '),
        (RawJson('"\\ud83d\\ude00 \\\\u0000"'), '"\\ud83d\\ude00 \\\\u0000"'),
        (RawJson("1.7976931348623157e308"), "1.7976931348623157e308"),
        (RawJson("1" * 400), "1" * 400),
        (RawJson("1" * 4300), "1" * 4300),
        (RawJson(f'{{"a":"{"1" * 5000}"}}'), f'{{"a":"{"1" * 5000}"}}'),
        (RawJson(f"0.{'1' * 5000}"), f"0.{'1' * 5000}"),
    ],
    ids=lambda value: repr(value)[:80],
)
def test_value_becomes_json(value: Any, text: str) -> None:
    assert encode(value, "payload") == text


_NOT_JSON: dict[str, tuple[Any, str]] = {
    "no JSON": (RawJson("{x}"), "payload is not JSON"),
    "empty": (RawJson(""), "EOF"),
    "something after it": (RawJson('{"a":1} x'), "trailing characters"),
    "raw NaN": (RawJson("NaN"), "payload is not JSON"),
    "raw infinity": (RawJson("[-Infinity]"), "payload is not JSON"),
    "NaN": ({"x": float("nan")}, "NaN is not a JSON number"),
    "infinity": ([float("-inf")], "-Infinity is not a JSON number"),
    "NaN in a model": (Landed(carrier="a", arr_delay=float("nan")), "nan is not a JSON number"),
    "infinity deep in models": (
        {"t": Trip(legs=[Landed(carrier="a", arr_delay=float("inf"))])},
        "inf is not a JSON number",
    ),
    "1e400": (RawJson('{"x": 1e400}'), "number 1e400 is beyond what a float holds"),
    "-1E+999": (RawJson("[-1E+999]"), "is beyond what a float holds"),
    "400 digits and a fraction": (RawJson("1" * 400 + ".5"), "is beyond what a float holds"),
    "integer of 4,301 digits": (
        {"x": -(10**4300)},
        "integer -1000000000000000000… has 4,301 digits, more than the 4,300 that Python reads; use a string",
    ),
    "raw integer of 5,000 digits": (
        RawJson(f'{{"x": [{"9" * 5000}]}}'),
        "has 5,000 digits, more than the 4,300",
    ),
    "5,000 digits and a fraction": (RawJson("1" * 5000 + ".5"), "is beyond what a float holds"),
    "NUL in a value": ({"x": "a\0b"}, "holds the character NUL"),
    "NUL in a key": ({"a\0": 1}, "a key holds the character NUL"),
    "NUL in a model": (Landed(carrier="\0"), "holds the character NUL"),
    "raw NUL": (RawJson('["\\u0000"]'), "holds the character NUL"),
    "raw NUL behind a key that comes again": (RawJson('{"a":"\\u0000","a":1}'), "holds the character NUL"),
    "half a surrogate pair": ({"x": "\ud83d"}, "surrogates not allowed"),
    "half a surrogate pair in a key": ({"\ud83d": 1}, "payload is not JSON"),
    "half a surrogate pair in a model": (Landed.model_construct(carrier="\udc00"), "surrogates not allowed"),
    "raw half of a surrogate pair": (RawJson('"\ud83d"'), "surrogates not allowed"),
    "raw escaped half of a surrogate pair": (RawJson('{"a":"\\ud83d"}'), "payload is not JSON"),
    "too deep": (RawJson("[" * 100_000), "recursion limit"),
    "no type of JSON": (object(), "Unable to serialize unknown type"),
    "20 MB": ("x" * 20_000_000, "payload has 20,000,002 bytes, more than 16,777,216: store it elsewhere"),
    "raw 20 MB": (RawJson('"' + "x" * 20_000_000 + '"'), "payload has 20,000,002 bytes"),
    "few characters of many bytes": ("ü" * 9_000_000, "payload has 18,000,002 bytes"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("value", "message"), _NOT_JSON.values(), ids=_NOT_JSON)
def test_value_that_can_not_be_stored_is_refused(value: Any, message: str) -> None:
    with pytest.raises(InvalidEvent) as caught:
        encode(value, "payload")

    assert message in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.slow
def test_largest_payload_is_taken() -> None:
    assert len(encode("x" * (MAX_PAYLOAD_BYTES - 2), "payload")) == MAX_PAYLOAD_BYTES


def test_model_that_writes_nan_in_its_own_way_is_taken_as_it_writes() -> None:
    class Odd(BaseModel):
        model_config = ConfigDict(ser_json_inf_nan="strings")
        x: float

    assert encode(Odd(x=float("nan")), "payload") == '{"x":"NaN"}'


# --- rows of events


def test_row_takes_name_and_version_from_the_model() -> None:
    assert event_row(event(payload=Left(carrier="UA", gate="A1"), event_type=None))[:5] == (
        "a", "plane", "flight-left", '{"carrier":"UA","gate":"A1"}', 3,
    )  # fmt: skip


def test_event_may_name_another_type_and_version() -> None:
    row = event_row(event(payload=Left(carrier="UA", gate="A1"), event_type="Old", version=2))

    assert (row[2], row[4]) == ("Old", 2)


def test_tags_become_an_array_literal() -> None:
    assert (
        event_row(event(tags=["a,b", '"', "\\", "{}", "NULL", " "]))[6]
        == '{"a,b","\\"","\\\\","{}","NULL"," "}'
    )


_BAD_EVENTS: dict[str, tuple[dict[str, Any], str]] = {
    "empty source id": ({"source_id": ""}, "source '': source_id must have 1 to 255 characters, it has 0"),
    "source id of 10 kB": ({"source_id": "x" * 10_240}, "must have 1 to 255 characters, it has 10,240"),
    "source id no string": ({"source_id": 5}, "source_id must be a string, not int"),
    "NUL in the source id": ({"source_id": "a\0"}, "source_id holds the character NUL"),
    "half a surrogate pair in the source id": ({"source_id": "a\ud83d"}, "source_id holds half of a"),
    "empty entity type": ({"entity_type": ""}, "source 'a': entity_type must have 1 to 255"),
    "NUL in the entity type": ({"entity_type": "\0"}, "source 'a': entity_type holds the character NUL"),
    "no event type": ({"event_type": None}, "source 'a': the event has no event_type"),
    "empty event type": ({"event_type": ""}, "source 'a': event_type must have 1 to 255"),
    "long event type": ({"event_type": "x" * 256}, "event_type must have 1 to 255 characters, it has 256"),
    "version 0": ({"version": 0}, "source 'a': version must be 1 to 32767, not 0"),
    "version 40000": ({"version": 40_000}, "version must be 1 to 32767, not 40000"),
    "one string as tags": ({"tags": "abc"}, "tags must be a list of strings, not one string"),
    "tag that is not a string": ({"tags": ["a", None]}, "a tag must be a string, not NoneType"),
    "empty tag": ({"tags": [""]}, "a tag must have 1 to 255 characters"),
    "NUL in a tag": ({"tags": ["a\0"]}, "source 'a': a tag holds the character NUL"),
    "half a surrogate pair in a tag": ({"tags": ["\ud83d"]}, "a tag holds half of a surrogate pair"),
    "NUL in metadata": ({"metadata": {"x": "\0"}}, "metadata is not JSON: a string holds the character NUL"),
    "NaN in metadata": ({"metadata": {"x": float("nan")}}, "source 'a': metadata is not JSON: NaN"),
    "half a surrogate pair in metadata": ({"metadata": {"x": "\ud83d"}}, "metadata is not JSON"),
    "NaN in the payload": ({"payload": {"x": float("nan")}}, "source 'a': payload is not JSON: NaN"),
    "event_id no UUID": ({"event_id": "1"}, "source 'a': event_id must be a UUID, not '1'"),
}  # fmt: skip


def test_what_cannot_be_stored_of_a_payload_is_not_quoted_in_the_error() -> None:
    for payload in ({"card": "secret\0"}, {"card": "secret\ud83d"}, {"secret\0": 1}):
        with pytest.raises(InvalidEvent) as caught:
            event_row(replace(event(), payload=payload))

        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(("values", "message"), _BAD_EVENTS.values(), ids=_BAD_EVENTS)
def test_bad_event_is_refused_by_name(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidEvent) as caught:
        event_row(replace(event(), **values))

    assert message in str(caught.value)
    str(caught.value).encode()  # the message itself can be printed and logged


# --- decoding


def test_payload_becomes_its_model() -> None:
    assert decode(Landed, _stored({"carrier": "UA", "arr_delay": 2})) == Landed(carrier="UA", arr_delay=2)


@pytest.mark.parametrize(
    ("version", "payload"),
    [(1, {"c": "UA"}), (2, {"carrier": "UA"}), (3, {"carrier": "UA", "gate": "?"})],
)
def test_older_versions_are_lifted_step_by_step(version: int, payload: dict[str, str]) -> None:
    assert decode(Left, _stored(payload, version, "flight-left")) == Left(carrier="UA", gate="?")


def test_payload_that_does_not_fit_names_type_source_number_and_fields() -> None:
    with pytest.raises(InvalidPayload) as caught:
        decode(Trip, _stored({"legs": [{"carrier": 5}]}))

    assert str(caught.value).startswith(
        "event 'Landed' of source 'N14228', seq_nr 7 does not fit Trip: legs.0.carrier:"
    )


def test_value_of_a_payload_is_not_quoted_in_the_error() -> None:
    with pytest.raises(InvalidPayload) as caught:
        decode(Left, _stored({"carrier": "UA", "gate": "secret"}, 3))

    assert "gate" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_newer_version_says_to_deploy_the_newer_program() -> None:
    with pytest.raises(
        InvalidPayload, match=r"was written as version 4; this program knows Left up to version 3"
    ):
        decode(Left, _stored({}, 4))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_upcast_to_what_json_has_not_is_refused(value: float) -> None:
    @event_type("test.of no number", version=2, upcast={1: lambda _: {"ratio": value, "text": "NaN"}})
    class Ratio(BaseModel):
        ratio: float

    with pytest.raises(InvalidPayload, match="the upcast payload is not JSON"):
        upcast_json(Ratio, 1, "{}", "s", 1)


def test_upcast_that_fails_names_the_event_and_the_version() -> None:
    with pytest.raises(InvalidPayload, match=r"seq_nr 7: upcast from version 1 failed: KeyError\('c'\)"):
        decode(Left, _stored({}, 1))


def test_payload_that_is_no_json_does_not_fit() -> None:
    with pytest.raises(InvalidPayload, match=r"does not fit Landed: payload: Invalid JSON"):
        decode(Landed, _stored("{"))


# --- declaring


def test_name_and_version_default_to_the_class_and_1() -> None:
    assert event_type_of(Landed)[:2] == ("Landed", 1)
    assert event_type_of(Left)[:2] == ("flight-left", 3)


def test_subclass_is_another_event() -> None:
    class Sub(Left):
        pass

    assert event_type_of(Sub)[:2] == ("Sub", 1)


@pytest.mark.parametrize(
    ("version", "message"), [(0, "version must be"), (40_000, "version must be"), (2, "from version 1")]
)
def test_impossible_declaration_is_refused(version: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        event_type(version=version)


# --- what readers see


@event_type("test.once")
class Once(BaseModel):
    n: int


OLDEST = _stored('{"c": "UA"}', version=1, event_type="flight-left")
NEWEST = {"carrier": "UA", "gate": "?"}


def test_payload_is_that_of_the_newest_version() -> None:
    assert [OLDEST.payload, OLDEST.stored_payload] == [NEWEST, {"c": "UA"}]
    assert (OLDEST.version, OLDEST.payload_json, newest_json(OLDEST)) == (
        1,
        '{"c": "UA"}',
        json.dumps(NEWEST, separators=(",", ":")),
    )


def test_event_is_that_of_the_declared_model() -> None:
    assert OLDEST.event == decode(Left, OLDEST) == Left(**NEWEST)


@pytest.mark.parametrize("version", [3, 4])
def test_payload_of_a_version_that_needs_nothing_is_as_written(version: int) -> None:
    written = _stored('{ "x": 1.0}', version, "flight-left")
    assert newest_json(written) is written.payload_json


@pytest.mark.parametrize("entity_type", ["published", "webhook-message"])
def test_topic_of_a_message_has_no_versions(entity_type: str) -> None:
    assert _stored({"n": 1}, 1, "test.once")._replace(entity_type=entity_type).event == Once(n=1)
    message = OLDEST._replace(entity_type=entity_type)
    assert message.payload == {"c": "UA"}
    with pytest.raises(UnknownEventType, match="no model is declared for it"):
        message.event  # noqa: B018


def test_event_without_a_declared_model_says_how_to_declare_it() -> None:
    with pytest.raises(UnknownEventType, match=r"source 'N14228', seq_nr 7.*@event_type\('Nobody'\)"):
        _stored({}, event_type="Nobody").event  # noqa: B018


def test_payload_that_cannot_be_converted_is_an_error() -> None:
    with pytest.raises(InvalidPayload, match="seq_nr 7: upcast from version 1 failed: KeyError"):
        _stored({}, 1, "flight-left").payload  # noqa: B018


def test_newest_of_several_models_of_a_name_counts() -> None:
    class Kept(BaseModel):
        n: int

    older, newer = (type(name, (Kept,), {}) for name in ("Older", "Newer"))
    event_type("test.kept", version=2, upcast={1: lambda p: {"n": p["m"]}})(newer)
    event_type("test.kept")(older)
    assert type(_stored({"m": 1}, 1, "test.kept").event) is newer


def test_models_that_come_from_another_process_are_declared_where_they_are_used() -> None:
    made = type("Made", (BaseModel,), {"__annotations__": {"n": int}})
    made.__event_type__ = EventType("test.made", 2, {1: lambda p: {"n": p["m"]}})  # type: ignore[attr-defined]
    stored = _stored({"m": 1}, 1, "test.made")
    assert stored.payload == {"m": 1}
    decoder(made)
    assert stored.payload == {"n": 1}
