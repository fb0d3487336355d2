"""Payloads as columns: JSON text into Arrow structs, with the fields that the reader of the data asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from journal import InvalidPayload

NEEDED = ("source_id", "seq_nr", "event_type", "payload")
"""Columns that a batch needs for :meth:`PayloadReader.struct`: an error names the event."""

_NEARLY = 1e-9
"""What a double may differ from a decimal, of its size."""

# Arrow's words: the column, what it was declared to be, what was found.
_OTHER_KIND = re.compile(r"Column\((.*)\) changed from (\w+) to (\w+) in row")
_ROW = re.compile(r" in row \d+$")


class PayloadReader:
    """
    Reads payloads as structs.

    A field that a payload does not have is null; what a payload has beyond the fields is left out. Numbers, texts and
    truth values are not turned into one another; times and dates are ISO texts.

    Raises:
        ValueError: A field has a type that JSON is not read into, or must not be null.
    """

    def __init__(self, wanted: pa.StructType) -> None:
        if wanted.num_fields == 0:
            raise ValueError("no fields")
        self._wanted = wanted
        _readable_type(wanted, "")

    def struct(self, batch: pa.RecordBatch) -> pa.StructArray:
        """
        The payloads of a batch, which has the columns :data:`NEEDED`.

        InvalidPayload names the event that does not fit, the field and what is wrong.
        """
        parts: list[pa.StructArray] = []
        for part, wrong in self._parts(batch.column("payload")):
            if wrong is not None:
                row = sum(len(one) for one in parts)
                source_id, seq_nr, event_type = (batch.column(name)[row].as_py() for name in NEEDED[:3])
                raise InvalidPayload(
                    f"source {source_id!r}, seq_nr {seq_nr}, event type {event_type!r}: {wrong}"
                )
            parts.append(part)
        return pa.concat_arrays(parts)

    def permissive(self, batch: pa.RecordBatch) -> tuple[pa.StructArray, pa.StringArray]:
        """The payloads of a batch, those that do not fit as null, and for each what is wrong: null where it fits."""
        parts, wrong = zip(*self._parts(batch.column("payload")), strict=True)
        reasons = [
            pa.array([reason] * len(part), pa.string()) for part, reason in zip(parts, wrong, strict=True)
        ]
        return pa.concat_arrays(parts), pa.concat_arrays(reasons)

    def _parts(self, texts: pa.StringArray) -> Iterator[tuple[pa.StructArray, str | None]]:
        """In order: what fits, in pieces as large as can be, and each text that does not, with what is wrong."""
        try:
            yield self._parse(texts, self._wanted), None
        except (pa.ArrowException, ValueError):
            if len(texts) == 1:
                yield pa.nulls(1, self._wanted), self._wrong(texts)
                return
            half = len(texts) // 2
            yield from self._parts(texts.slice(0, half))
            yield from self._parts(texts.slice(half))

    def _parse(self, texts: pa.StringArray, wanted: pa.StructType) -> pa.StructArray:
        if len(texts) == 0:
            return pa.array([], wanted)
        # Also because Arrow's reader crashes the process on a bare null.
        if not pc.all(pc.starts_with(pc.utf8_ltrim_whitespace(texts), "{"), skip_nulls=False).as_py():
            raise pa.ArrowInvalid("it is not a JSON object")
        lines = pc.binary_join(pa.ListArray.from_arrays([0, len(texts)], texts), "\n")[0].as_buffer()
        found = _objects(lines, _readable_type(wanted, ""))
        doubles = _with_doubles(wanted)
        _refuse_overflow(found, found if doubles == wanted else _objects(lines, _readable_type(doubles, "")))
        return found.cast(wanted)

    def _wrong(self, text: pa.StringArray) -> str:
        if (reason := self._fails(text, pa.struct([]))) is not None:
            return f"the payload does not fit payloadschema: {reason}"
        for field in self._wanted:
            if (reason := self._fails(text, pa.struct([field]))) is not None:
                return f"field {field.name!r} does not fit payloadschema: {reason}"
        return "the payload does not fit payloadschema: unreadable"

    def _fails(self, text: pa.StringArray, wanted: pa.StructType) -> str | None:
        try:
            self._parse(text, wanted)
        except (pa.ArrowException, ValueError) as error:
            return _plainly(str(error))
        return None


def _objects(lines: pa.Buffer, fields: pa.StructType) -> pa.StructArray:
    table = pa_json.read_json(
        pa.BufferReader(lines),
        # One block: an object may be of any length, and may have line breaks.
        read_options=pa_json.ReadOptions(use_threads=False, block_size=lines.size + 1),
        parse_options=pa_json.ParseOptions(
            explicit_schema=pa.schema(list(fields)), unexpected_field_behavior="ignore"
        ),
    ).combine_chunks()
    columns = [pa.chunked_array(table[field.name]).combine_chunks() for field in fields]
    return pa.StructArray.from_arrays(columns, fields=list(fields))


def _with_doubles(kind: pa.DataType) -> pa.DataType:
    """The same with doubles for decimals."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_with_doubles(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_with_doubles(kind.value_type))
    return pa.float64() if pa.types.is_decimal(kind) else kind


def _refuse_overflow(found: pa.Array, doubles: pa.Array) -> None:
    """Raise where a number did not fit: Arrow makes it infinite as a float, and any number at all as a decimal."""
    if pa.types.is_struct(found.type):
        for one, its_doubles in zip(found.flatten(), doubles.flatten(), strict=True):
            _refuse_overflow(one, its_doubles)
    elif pa.types.is_list(found.type):
        _refuse_overflow(found.flatten(), doubles.flatten())
    elif pa.types.is_floating(found.type):
        if pc.any(pc.invert(pc.is_finite(found))).as_py():
            raise pa.ArrowInvalid(f"the number is too large for {found.type}")
    elif pa.types.is_decimal(found.type):
        difference = pc.abs(pc.subtract(found.cast(pa.float64()), doubles))
        allowed = pc.add(pc.multiply(pc.abs(doubles), _NEARLY), 10.0**-found.type.scale)
        if pc.any(pc.greater(difference, allowed)).as_py() or _has_more_digits(found):
            raise pa.ArrowInvalid(f"the number does not fit {found.type}")


def _has_more_digits(found: pa.Array) -> bool:
    """Whether a decimal has more digits than its type: Arrow takes what 128 bits hold, which Spark cannot read."""
    wide = pa.decimal256(76, found.type.scale)
    first_too_large = pa.scalar(Decimal(1).scaleb(found.type.precision - found.type.scale), wide)
    return bool(pc.any(pc.greater_equal(pc.abs(found.cast(wide)), first_too_large)).as_py())


def _plainly(reason: str) -> str:
    if found := _OTHER_KIND.search(reason):
        return f"{found[3]} where {found[2]} is wanted, at {found[1] or '/'}"
    return _ROW.sub("", reason).removeprefix("JSON parse error: ")


def _readable(field: pa.Field) -> pa.Field:
    if not field.nullable:
        raise ValueError(
            f"field {field.name!r} is NOT NULL: a payload may lack any field, so all may be null"
        )
    return field.with_type(_readable_type(field.type, field.name))


def _readable_type(kind: pa.DataType, name: str) -> pa.DataType:
    """What Arrow's JSON reader makes of the text; it knows times, and no dates."""
    if pa.types.is_struct(kind):
        return pa.struct([_readable(kind.field(i)) for i in range(kind.num_fields)])
    if pa.types.is_list(kind):
        return pa.list_(_readable_type(kind.value_type, name))
    if pa.types.is_date32(kind):
        return pa.timestamp("s")
    if pa.types.is_string(kind) or pa.types.is_boolean(kind) or pa.types.is_timestamp(kind):
        return kind
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return kind
    raise ValueError(f"field {name!r} is of a type that payloads are not read into: take STRING")
