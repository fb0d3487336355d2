"""Payloads as columns: JSON text into Arrow structs, with the fields that the reader of the data asked for."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from journal import InvalidPayload

NEEDED = ("source_id", "seq_nr", "event_type", "payload")
"""Columns that a batch needs for :meth:`PayloadReader.struct`: an error names the event."""

_WHOLE = ""

# Arrow's words: the column, what it was declared to be, what was found.
_OTHER_KIND = re.compile(r"Column\((.*)\) changed from (\w+) to (\w+) in row")
_ROW = re.compile(r" in row \d+$")


class PayloadReader:
    """
    Reads payloads as structs.

    A field that a payload does not have is null; what a payload has beyond the fields is left out. Numbers, texts and
    truth values are not turned into one another; times and dates are ISO texts.

    Args:
        wanted: The struct to make.

    Raises:
        ValueError: A field has a type that JSON is not read into, or must not be null.
    """

    def __init__(self, wanted: pa.StructType) -> None:
        if wanted.num_fields == 0:
            raise ValueError("no fields")
        self._wanted = wanted
        self._read_as = pa.schema([_readable(wanted.field(i)) for i in range(wanted.num_fields)])

    def struct(self, batch: pa.RecordBatch) -> pa.StructArray:
        """
        The payloads of a batch.

        Args:
            batch: With the columns :data:`NEEDED`.

        Raises:
            InvalidPayload: A payload does not fit; names the event, the field and what is wrong.
        """
        texts = batch.column("payload")
        try:
            return self._parse(texts, self._read_as)
        except (pa.ArrowException, ValueError):
            raise self._blame(batch, texts) from None

    def _parse(self, texts: pa.StringArray, fields: pa.Schema) -> pa.StructArray:
        if len(texts) == 0:
            return pa.array([], self._wanted)
        # Also because Arrow's reader crashes the process on a bare null.
        if not pc.all(pc.starts_with(pc.utf8_ltrim_whitespace(texts), "{")).as_py():
            raise pa.ArrowInvalid("it is not a JSON object")
        lines = pc.binary_join(pa.ListArray.from_arrays([0, len(texts)], texts), "\n")[0].as_buffer()
        table = pa_json.read_json(
            pa.BufferReader(lines),
            # One block: an object may be of any length, and may have line breaks.
            read_options=pa_json.ReadOptions(use_threads=False, block_size=lines.size + 1),
            parse_options=pa_json.ParseOptions(explicit_schema=fields, unexpected_field_behavior="ignore"),
        ).combine_chunks()
        wanted = [self._wanted.field(name) for name in fields.names]
        columns = [pa.chunked_array(table[field.name]).combine_chunks() for field in wanted]
        cast = [column.cast(field.type) for column, field in zip(columns, wanted, strict=True)]
        return pa.StructArray.from_arrays(cast, fields=wanted)

    def _blame(self, batch: pa.RecordBatch, texts: pa.StringArray) -> InvalidPayload:
        row = self._first_wrong(texts)
        field, reason = self._wrong_field(texts.slice(row, 1))
        source_id, seq_nr, event_type = (batch.column(name)[row].as_py() for name in NEEDED[:3])
        where = f"field {field!r}" if field else "the payload"
        return InvalidPayload(
            f"source {source_id!r}, seq_nr {seq_nr}, event type {event_type!r}: {where} does not fit "
            f"payloadschema: {reason}"
        )

    def _first_wrong(self, texts: pa.StringArray) -> int:
        first, count = 0, len(texts)
        while count > 1:
            half = count // 2
            if self._fails(texts.slice(first, half), self._read_as) is not None:
                count = half
            else:
                first, count = first + half, count - half
        return first

    def _fails(self, texts: pa.StringArray, fields: pa.Schema) -> str | None:
        try:
            self._parse(texts, fields)
        except (pa.ArrowException, ValueError) as error:
            return _plainly(str(error))
        return None

    def _wrong_field(self, text: pa.StringArray) -> tuple[str, str]:
        if (reason := self._fails(text, pa.schema([]))) is not None:
            return _WHOLE, reason
        failed = ((field.name, self._fails(text, pa.schema([field]))) for field in self._read_as)
        return next(((name, reason) for name, reason in failed if reason is not None), (_WHOLE, "unreadable"))


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
