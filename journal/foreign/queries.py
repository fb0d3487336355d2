"""The queries of a mapped table: the files of ``sql/foreign``, filled in. Names are quoted, values are bound."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from functools import cache

from journal.backtracking import END_OF_TIME
from journal.database.identifiers import literal, quote
from journal.events import BEGINNING
from journal.foreign.mapping import VALUES, Bound, Constant, Expression, TableMapping, Value
from journal.sql_files import sql_root

NAMES = (
    "events", "keys", "heads", "load", "predecessors", "source", "latest", "find", "counts", "counts_until",
)  # fmt: skip
"""Queries that are the same for every bound."""

TEXT_TYPES = frozenset({"text", "character varying", "character"})
INTEGER_TYPES = frozenset({"bigint", "integer", "smallint"})
BYTES_TYPE = "bytea"

_CASTS: Mapping[str, str] = {
    "entity_type": "text", "event_type": "text", "tags": "text[]", "event_id": "uuid", "version": "integer",
    "slice": "integer", "serializer_id": "integer", "manifest": "text", "metadata_serializer_id": "integer",
    "metadata_manifest": "text",
}  # fmt: skip
_COLUMNS = (
    "e.source_id, e.seq_nr, time_of(e.place) AS db_timestamp, e.slice, e.event_id, e.entity_type, e.event_type, "
    "e.version, e.payload, e.metadata, e.tags, e.serializer_id, e.manifest, e.metadata_serializer_id, "
    "e.metadata_manifest"
)
_LARGEST = 2**63 - 1
_LARGEST_INTEGER = 2**31 - 1
_LAST_PLACE = (END_OF_TIME - BEGINNING) // timedelta(microseconds=1)
_CALL = re.compile(r"\b(place_of|time_of|source_of|number_of|in_slices|slice_of)\(([^()]*)\)")
_WORD = re.compile(r"\bforeign_(\w+)")
_LONGEST = 512
"""UTF-16 units of an id of 255 characters, and some more."""
_SHORT = 64
"""Bytes of an id whose hash is one sum."""
_LOW = 7
"""Powers of 31 whose product with 32 bits fits into 64."""


def sql_of(value: Value) -> str:
    """What a part of the mapping is in a query over the table ``t``."""
    if isinstance(value, Constant):
        return literal(value.text)
    if isinstance(value, Expression):
        return f"({value.sql}\n)"  # it may end with a comment
    return column(value)


def column(name: str) -> str:
    """A column of the table ``t``."""
    return f"t.{quote(name)}"


def queries_of(
    mapping: TableMapping, types: Mapping[str, str], *, sequence: str | None = None, by_slice: bool = False
) -> dict[str, str]:
    """
    All queries of a table.

    Args:
        mapping: The meaning of its columns.
        types: The SQL types of its parts, as format_type() names them: with a schema, where they are not of pg_catalog.
        sequence: The sequence that its position is drawn from, quoted; for the bound that asks it.
        by_slice: Read a page slice by slice, where only an index that begins with the slice is there.
    """
    filling = _Filling(mapping, types, sequence, by_slice=by_slice)
    bound = mapping.bound.replace("-", "_")
    return {
        **{name: filling.fill(name) for name in NAMES},
        "types": filling.fill("types_by_slice" if by_slice else "types"),
        "passed_over": filling.fill("check_places_by_slice" if by_slice else "check_places"),
        **{name: filling.fill(f"{name}_{bound}") for name in ("poll", "now", "writers")},
        **{name: f"(\n{filling.fill(name)}\n)" for name in ("relation", "sources")},
    }


def in_no_slice(mapping: TableMapping, types: Mapping[str, str]) -> str:
    """The query that counts the rows whose slice is none; it may read the whole table."""
    return _Filling(mapping, types, None, by_slice=False).fill("check_slices")


class _Filling:
    """Fills in the files for one mapping."""

    def __init__(
        self, mapping: TableMapping, types: Mapping[str, str], sequence: str | None, *, by_slice: bool
    ) -> None:
        self._types = types
        self._first = mapping.first_number
        self._bound: Bound = mapping.bound
        self._stores_slices = mapping.slice is not None
        self._words = {
            "events": f"(\n{self._relation(mapping)}\n)",
            "table": literal(mapping.name),
            "sequence": sequence or "",
        }
        parts = {name: name for name in ("generation", "sessions", "sources")}
        parts |= {name: f"{name}_by_slice" if by_slice else name for name in ("types", "page", "newest")}
        for word, file in parts.items():
            self._words[word] = f"(\n{self.fill(file)}\n)"

    def fill(self, file: str) -> str:
        text = _CALL.sub(self._call, _file(file).replace("foreign_columns", _COLUMNS))
        return _filled(text, self._words)

    def _call(self, found: re.Match[str]) -> str:
        function, argument = found[1], found[2]
        if function == "source_of":
            return f"({argument})::{_key_type(self._types['source'])}"
        if function == "number_of":
            # Each sum of any stored number fits: an error of one row would be that of its whole page.
            return (
                f"(({argument})::bigint)"
                if self._first
                else f"(greatest(({argument})::bigint, {-_LARGEST}) - 1)"
            )
        if function == "in_slices":
            return self._in_slices(*argument.split(", "))
        if function == "slice_of":
            source_id, stored = argument.split(", ")
            return stored if self._stores_slices else _slice_of(source_id)
        return self._time_call(function, argument)

    def _time_call(self, function: str, argument: str) -> str:
        by_time = self._bound == "transaction-start"
        if function == "place_of":
            time = f"({argument})::timestamptz"
            return time if by_time else f"(extract(EPOCH FROM {time}) * 1000000)::bigint"
        # Only what a driver can read: no page reaches farther, but a source's other events lead to such a one.
        if by_time:
            return f"least(greatest(({argument})::timestamptz, 'epoch'), '{END_OF_TIME.isoformat()}')"
        place = f"least(greatest({argument}, 0), {_LAST_PLACE})"
        return f"(timestamptz 'epoch' + {place} * interval '1 microsecond')"

    def _in_slices(self, value: str, first: str, last: str) -> str:
        if self._stores_slices:
            return f"{value} BETWEEN {first} AND {last}"
        return f"(({first} = 0 AND {last} = 1023) OR abs(2 * {value} - {first} - {last}) <= {last} - {first})"

    def _relation(self, mapping: TableMapping) -> str:
        source_id = f'({column(mapping.source)}::text COLLATE "C")'
        parts = {
            "source": column(mapping.source),
            "number": column(mapping.number),
            "place": column(mapping.position),
            "source_id": source_id,
            "seq_nr": self._seq_nr(column(mapping.number)),
            **{name: self._part(name, getattr(mapping, name)) for name in VALUES if name != "deleted"},
            "bytes": f"(512 + {self._bytes('payload', mapping.payload)} + {self._bytes('metadata', mapping.metadata)})",
        }
        parts["stored_slice"] = parts["slice"]
        if mapping.slice is None:
            parts["slice"] = _slice_of(source_id)
        shown = ", ".join(f"{sql} AS {name}" for name, sql in parts.items())
        condition = "" if mapping.deleted is None else f" WHERE ({sql_of(mapping.deleted)}) IS NOT TRUE"
        return "\nUNION ALL\n".join(f"SELECT {shown} FROM {name} AS t{condition}" for name in mapping.names)

    def _seq_nr(self, number: str) -> str:
        return f"({number}::bigint)" if self._first else f"(least({number}::bigint, {_LARGEST - 1}) + 1)"

    def _part(self, name: str, value: Value | None) -> str:
        if value is None:
            return "1" if name == "version" else f"NULL::{_CASTS.get(name, 'text')}"
        if name in {"payload", "metadata"}:
            return sql_of(value) if self._types[name] == BYTES_TYPE else f"({sql_of(value)})::text"
        if "." in self._types[name]:  # of no type of PostgreSQL's own
            return _written(sql_of(value))
        sql = sql_of(value)
        if self._types[name] == "bigint":  # one that is too large must not fail its page
            bounded = f"least(greatest({sql}, {-_LARGEST_INTEGER}), {_LARGEST_INTEGER})"
            sql = f"CASE WHEN ({sql}) IS NOT NULL THEN {bounded} END"  # of NULL they make a bound
        part = f"({sql})::{_CASTS[name]}"
        return f"coalesce({part}, 1)" if name == "version" else part

    def _bytes(self, name: str, value: Value | None) -> str:
        """About how many bytes it has, told without unpacking it."""
        if value is None:
            return "0"
        sql = sql_of(value)
        if isinstance(value, Constant):
            return str(len(value.text))
        if self._types[name] == BYTES_TYPE:
            return f"least(coalesce(octet_length({sql}), 0), 100000000)"
        packed = f"CASE WHEN pg_column_compression({sql}) IS NULL THEN 1 ELSE 16 END"
        return f"least(coalesce(pg_column_size({sql}), 0), 50000000) * {packed}"


def _written(sql: str) -> str:
    """The text of a value as its type writes it: a cast may be a function of the type's owner."""
    return f"CASE WHEN ({sql}) IS NOT NULL THEN format('%s', {sql}) END"


def _key_type(type_name: str) -> str:
    if type_name == "uuid":
        return "uuid"
    return "bigint" if type_name in INTEGER_TYPES else "text"


def _slice_of(source_id: str) -> str:
    high = [pow(31, _LOW * exponent, 2**32) for exponent in range(_LONGEST // _LOW + 1)]
    low = [31**exponent for exponent in range(_LOW)]
    terms = (f"get_byte(b.bytes, {_SHORT - 1 - n}) * {pow(31, n, 2**32)}::bigint" for n in range(_SHORT))
    words = {
        name: f"('{{{','.join(map(str, powers))}}}'::bigint[])"
        for name, powers in (("high", high), ("low", low))
    }
    return f"(\n{filled('slice_of', source=source_id, short=str(_SHORT), sum=' + '.join(terms), **words)}\n)"


def filled(file: str, **words: str) -> str:
    """A file with SQL in the places of its words, each of which is there as ``foreign_`` and its name."""
    return _filled(_file(file), words)


def _filled(text: str, words: Mapping[str, str]) -> str:
    # In one pass: what is filled in is not looked at again, for it has the mapping's own SQL.
    return _WORD.sub(lambda found: words[found[1]], text)


@cache
def _file(name: str) -> str:
    text = (sql_root() / "foreign" / f"{name}.sql").read_text()
    return re.sub(r" *--.*\n", "\n", text).strip()
