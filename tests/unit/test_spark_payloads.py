"""Payloads into structs: which JSON fits which field, and who is named when it does not."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from journal import InvalidPayload
from spark_projections.source.payloads import PayloadReader


def batch(*payloads: str) -> pa.RecordBatch:
    numbers = range(1, len(payloads) + 1)
    return pa.record_batch(
        {
            "source_id": pa.array([f"N{number}" for number in numbers], pa.string()),
            "seq_nr": pa.array(numbers, pa.int64()),
            "event_type": pa.array(["Landed"] * len(payloads), pa.string()),
            "payload": pa.array(payloads, pa.string()),
        }
    )


def read(fields: dict[str, pa.DataType], *payloads: str) -> list[Any]:
    wanted = pa.struct(fields)
    found = PayloadReader(wanted).struct(batch(*payloads))
    assert found.type == wanted
    return found.to_pylist()


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (pa.int32(), "7", 7),
        (pa.float64(), "7", 7.0),
        (pa.float64(), "1.5e3", 1500.0),
        (pa.bool_(), "true", True),
        (pa.string(), r'"\u00e9\n\ud83d\ude00"', "é\n😀"),
        (pa.string(), "null", None),
        (pa.decimal128(10, 2), "1.25", Decimal("1.25")),
        (pa.date32(), '"2026-01-31"', date(2026, 1, 31)),
        (
            pa.timestamp("us", "UTC"),
            '"2026-01-31T01:00:00.000001+01:00"',
            datetime(2026, 1, 31, microsecond=1, tzinfo=UTC),
        ),
        (pa.list_(pa.int64()), "[1, null]", [1, None]),
        (
            pa.struct({"d": pa.list_(pa.date32())}),
            '{"d": ["2026-01-31", null], "more": {}}',
            {"d": [date(2026, 1, 31), None]},
        ),
        (pa.struct({"d": pa.date32()}), "null", None),
        (pa.float32(), "3.4e38", pa.scalar(3.4e38, pa.float32()).as_py()),
        (pa.float32(), "1e-60", 0.0),
        (
            pa.decimal128(38, 18),
            "12345678901234567890.123456789012345678",
            Decimal("12345678901234567890.123456789012345678"),
        ),
        (pa.decimal128(38, 2), "1e30", Decimal("1e30")),
        (
            pa.decimal128(38, 18),
            "-99999999999999999999.999999999999999999",
            Decimal("-99999999999999999999.999999999999999999"),
        ),
        (pa.decimal128(20, 2), "999999999999999999.99", Decimal("999999999999999999.99")),
        (pa.decimal128(38, 38), "0.1", Decimal("0.1")),
        (pa.decimal128(38, 0), "9" * 38, Decimal("9" * 38)),
        (
            pa.list_(pa.struct({"x": pa.float32(), "y": pa.decimal128(10, 2)})),
            '[{"x": 1.5}, null]',
            [{"x": 1.5, "y": None}, None],
        ),
    ],
)
def test_a_value_that_fits_is_read(kind: pa.DataType, text: str, value: Any) -> None:
    assert read({"f": kind}, f'{{"before": [{{}}], "f": {text}}}') == [{"f": value}]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.int32(), '"7"'),
        (pa.int32(), "7.5"),
        (pa.int32(), "3000000000"),
        (pa.int32(), "true"),
        (pa.bool_(), "1"),
        (pa.string(), "7"),
        (pa.decimal128(10, 2), "1.255"),
        (pa.date32(), '"tomorrow"'),
        (pa.list_(pa.int64()), "7"),
        (pa.struct({"d": pa.int32()}), '{"d": "x"}'),
        (pa.float32(), "1e39"),
        (pa.float32(), "-3.5e38"),
        (pa.list_(pa.float32()), "[1, 1e39]"),
        (pa.struct({"d": pa.list_(pa.struct({"x": pa.float32()}))}), '{"d": [{"x": 1e39}]}'),
        (pa.decimal128(38, 18), "1e30"),
        (pa.list_(pa.decimal128(38, 18)), "[1, null, -1e30]"),
        (pa.decimal128(38, 18), "100000000000000000000"),
        (pa.decimal128(38, 18), "-111111111111111111111"),
        (pa.list_(pa.decimal128(38, 18)), "[1, null, 1e20]"),
        (pa.decimal128(20, 2), "1e18"),
        (pa.decimal128(4, 4), "1"),
        (pa.int64(), '1, "f": 2'),
        (pa.struct({"d": pa.int32()}), '{"d": 1, "d": 1}'),
    ],
)
def test_a_value_that_does_not_fit_is_blamed_on_its_event_and_field(kind: pa.DataType, text: str) -> None:
    payloads = ['{"f": null}'] * 9
    payloads[6] = f'{{"other": 1, "f": {text}}}'

    with pytest.raises(
        InvalidPayload, match=r"^source 'N7', seq_nr 7, event type 'Landed': field 'f' does not fit"
    ):
        read({"other": pa.int64(), "f": kind}, *payloads)


@pytest.mark.parametrize("payload", ["null", "7", '"{}"', r'{"f": "\ud83d"}', '[{"f": 1}]', " null "])
def test_a_payload_that_is_no_object_or_no_text_is_blamed_as_a_whole(payload: str) -> None:
    with pytest.raises(InvalidPayload, match="'N2', seq_nr 2, event type 'Landed': the payload does not fit"):
        read({"f": pa.int32()}, "{}", payload)


def test_permissive_reading_keeps_the_others_and_says_what_is_wrong_with_each() -> None:
    payloads = [f'{{"f": {number}}}' for number in range(20)]
    payloads[3] = '{"f": 1, "f": 2}'
    payloads[7] = '{"f": 1e400}'
    payloads[8] = "null"
    payloads[19] = '{"f": "x"}'
    reader = PayloadReader(pa.struct({"f": pa.float32()}))

    found, errors = reader.permissive(batch(*payloads))

    bad = {3, 7, 8, 19}
    assert found.to_pylist() == [None if n in bad else {"f": n} for n in range(20)]
    reasons = errors.to_pylist()
    assert {n for n, reason in enumerate(reasons) if reason is not None} == bad
    assert reasons[3] == "field 'f' does not fit payloadschema: Column(/f) was specified twice"
    assert reasons[8] == "the payload does not fit payloadschema: it is not a JSON object"
    assert (found.null_count, errors.null_count) == (4, 16)


@pytest.mark.parametrize("payloads", [[], ["null"] * 5, ["{}"] * 3])
def test_permissive_reading_of_none_of_all_and_of_no_wrong_payload(payloads: list[str]) -> None:
    found, errors = PayloadReader(pa.struct({"f": pa.int32()})).permissive(batch(*payloads))

    assert found.null_count == len(errors) - errors.null_count == payloads.count("null")
    assert len(found) == len(errors) == len(payloads)


def test_a_payload_that_is_null_fits_nothing_and_keeps_the_others() -> None:
    given = batch('{"f": 1}', "", '{"f": 3}')
    texts = pa.array(['{"f": 1}', None, '{"f": 3}'])
    found, errors = PayloadReader(pa.struct({"f": pa.int32()})).permissive(
        given.set_column(3, "payload", texts)
    )

    assert found.to_pylist() == [{"f": 1}, None, {"f": 3}]
    assert [reason is None for reason in errors.to_pylist()] == [True, False, True]


def test_line_breaks_and_blanks_between_values_do_no_harm() -> None:
    assert read({"f": pa.int32(), "g": pa.string()}, '\n {"f":\n1,\r\n\t"g": "x"}\n', "{}") == [
        {"f": 1, "g": "x"},
        {"f": None, "g": None},
    ]


def test_an_empty_batch_gives_an_empty_column() -> None:
    assert read({"f": pa.int32()}) == []


def test_a_payload_of_megabytes_is_read() -> None:
    text = "é" * 3_000_000

    assert read({"f": pa.string()}, "{}", f'{{"f": "{text}"}}')[1] == {"f": text}


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (pa.struct({}), "no fields"),
        (
            pa.struct({"f": pa.map_(pa.string(), pa.int32())}),
            "'f' is of a type that payloads are not read into",
        ),
        (pa.struct({"f": pa.list_(pa.binary())}), "'f' is of a type"),
        (pa.struct([pa.field("f", pa.int32(), nullable=False)]), "'f' is NOT NULL"),
    ],
)
def test_a_struct_that_payloads_can_not_be_read_into_is_refused(wanted: pa.StructType, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PayloadReader(wanted)
