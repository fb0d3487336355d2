"""SQL of read models: the same statement over a batch of events, and over a whole journal."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pydantic import BaseModel

from journal import event_type_of
from projections.defining.canonical import reads_by_fields
from projections.defining.sql_fields import (
    EVENT_COLUMNS,
    FieldColumn,
    columns_of,
    quote_literal,
    quote_name,
    short_name,
)
from projections.defining.tables import ColumnOperation

READ_BY_MODEL = 0
"""The version of an event whose payload a model has read: SQL takes it as it is."""

BATCH = "SELECT * FROM projections._events_by_keys_v1($1::text[], $2::bigint[], $3::timestamptz[])"
"""The events of keys."""

GIVEN = """
SELECT
    g.source_id, g.seq_nr, g.db_timestamp, g.event_id, g.entity_type, g.event_type, g.version,
    g.payload::json AS payload
FROM unnest(
    $1::text[], $2::bigint[], $3::timestamptz[], $4::uuid[], $5::text[], $6::text[], $7::smallint[], $8::text[]
) AS g (source_id, seq_nr, db_timestamp, event_id, entity_type, event_type, version, payload)
"""
"""Events whose columns are given."""

UPCAST_BATCH = f"""
SELECT b.source_id, b.seq_nr, b.db_timestamp, b.event_id, b.entity_type, b.event_type,
    CASE WHEN u.payload IS NULL THEN b.version ELSE {READ_BY_MODEL} END AS version,
    coalesce(u.payload::json, b.payload) AS payload
FROM ({BATCH}) AS b
LEFT JOIN unnest($4::text[], $5::bigint[], $6::text[]) AS u (source_id, seq_nr, payload)
    ON b.source_id = u.source_id AND b.seq_nr = u.seq_nr
"""
"""The same, with other payloads for some of them."""

_AGGREGATES = {
    "last": "(array_agg({0} ORDER BY {1} DESC))[1]",
    "min": "min({0}{2})",
    "max": "max({0}{2})",
}
_BY_CODE_POINT = ' COLLATE pg_catalog."C"'


@dataclass(frozen=True, slots=True)
class Output:
    """
    A column of the table.

    Args:
        name: Its name.
        argument: SQL of the expression; of an aggregate, of what it is over (``*`` of ``count(*)``).
        aggregate: The aggregate; empty for a column of the key, or of the rows of events.
        where: SQL of the aggregate's FILTER, or empty.
        operation: How values are combined; None: it is of the key.
    """

    name: str
    argument: str
    aggregate: str
    where: str
    operation: ColumnOperation | None


@dataclass(frozen=True, slots=True)
class Statement:
    """
    A statement that can be kept up to date.

    Args:
        outputs: The columns, in their order.
        averages: Columns that are computed from two others: name, column of the sum, column of the count.
        source: SQL of what stands after FROM.
        where: SQL of the condition, or empty.
        grouped: Whether rows are groups of events.
        reads: By relation, the columns that are read of it.
        source_column: The column of the key that holds the id of the source, if one does.
        number: SQL of the column with the event's number in its source, where it can be read.
    """

    outputs: tuple[Output, ...]
    averages: tuple[tuple[str, str, str], ...]
    source: str
    where: str
    grouped: bool
    reads: Mapping[str, frozenset[str]]
    source_column: str | None
    number: str | None

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row."""
        return tuple(output.name for output in self.outputs if output.operation is None)


@dataclass(frozen=True, slots=True)
class ReadModelQuery:
    """
    A statement over events.

    Args:
        statement: The SELECT, in pieces.
        models: By relation, the payload model.
        texts: The columns that hold text, which compare by code point.
    """

    statement: Statement
    models: Mapping[str, type[BaseModel]]
    texts: Collection[str] = ()

    def over(self, events: str) -> str:
        """
        The query, with the columns of the table.

        Args:
            events: SQL of the events, such as :data:`BATCH`.
        """
        relations = "".join(
            f", {quote_name(name)} AS ({_relation(self.models[name], used)})"
            for name, used in self.statement.reads.items()
        )
        return f"WITH _events AS ({events}){relations} {self._select()}"

    def _select(self) -> str:
        statement = self.statement
        outputs = ", ".join(
            f"{self._output(output)} AS {quote_name(output.name)}" for output in statement.outputs
        )
        where = f" WHERE {statement.where}" if statement.where else ""
        keys = [str(n) for n, output in enumerate(statement.outputs, 1) if output.operation is None]
        group = f" GROUP BY {', '.join(keys)}" if statement.grouped else ""
        return f"SELECT {outputs} FROM {statement.source}{where}{group}"

    def _output(self, output: Output) -> str:
        if not output.aggregate:
            return output.argument
        pattern = _AGGREGATES.get(output.aggregate, output.aggregate + "({0})")
        collation = _BY_CODE_POINT if output.name in self.texts else ""
        value = f"({output.argument})" if collation else output.argument
        found = pattern.format(value, self.statement.number, collation)
        return f"{found} FILTER (WHERE {output.where})" if output.where else found


def _relation(model: type[BaseModel], used: Collection[str]) -> str:
    """
    The events of a model, with the columns that are read.

    Nothing of the statement is computed before all of an event is tested: OFFSET keeps each part apart, and nothing is
    volatile, or PostgreSQL would write all rows down in between.
    """
    declared = event_type_of(model)
    own = [quote_name(name) for name in EVENT_COLUMNS if name in used]
    fields = _fields(model, used)
    inner = [f"e.{name}" for name in dict.fromkeys([*own, '"source_id"', '"version"', '"payload"'])]
    tests, read = [f"e.version <= {declared.version}"], []
    for n, column in enumerate(fields):
        inner += [f"{column.text} AS t{n}", f"{column.value(column.text)} AS v{n}"]
        tests.append(column.fits(f"e.t{n}", f"e.v{n}"))
        read.append(f"e.v{n} AS {quote_name(short_name(column.name))}")
    record = ", ".join(dict.fromkeys(column.declared for column in fields if column.in_record))
    lateral = f" CROSS JOIN LATERAL pg_catalog.json_to_record(e.payload) AS r({record})" if record else ""
    if not record:  # which takes nothing but objects
        tests.insert(0, "pg_catalog.json_typeof(e.payload) = 'object'")
    return (
        f"SELECT {', '.join([*(f'e.{name}' for name in own), *read]) or '1'} FROM ("
        f"SELECT {', '.join(inner)} FROM _events AS e{lateral} "
        f"WHERE e.event_type = {quote_literal(declared.name)} OFFSET 0) AS e "
        f"WHERE CASE WHEN e.version = {READ_BY_MODEL} OR {' AND '.join(tests)} THEN TRUE "
        "ELSE projections._refuse_event_v1('an event of source ' || e.source_id || ' is for its model to read') END "
        "OFFSET 0"
    )


def _fields(model: type[BaseModel], used: Collection[str]) -> list[FieldColumn]:
    return [
        column for name, column in columns_of(model).items() if name in used and name not in EVENT_COLUMNS
    ]


def only_models_read(statement: Statement, models: Mapping[str, type[BaseModel]]) -> bool:
    """Whether a statement reads what SQL cannot know that it reads it as the model does."""
    read = [column for name, used in statement.reads.items() for column in _fields(models[name], used)]
    return not all(map(reads_by_fields, models.values())) or any(column.test is None for column in read)


def create_table(name: str, statement: Statement, types: Mapping[str, str]) -> str:
    """
    The statement that creates the table of a read model.

    Args:
        name: The table, quoted for SQL.
        statement: The SELECT, in pieces.
        types: By column, its type.
    """
    columns = [
        f"{quote_name(output.name)} {types[output.name]}{_default(output)}" for output in statement.outputs
    ]
    columns += [
        f"{quote_name(average)} numeric GENERATED ALWAYS AS "
        f"({quote_name(total)}::numeric / nullif({quote_name(count)}, 0)) STORED"
        for average, total, count in statement.averages
    ]
    key = ", ".join(map(quote_name, statement.key))
    return f"CREATE TABLE {name} (\n    " + ",\n    ".join([*columns, f"PRIMARY KEY ({key})"]) + "\n)"


def _default(output: Output) -> str:
    counted = output.aggregate == "count" and output.operation is ColumnOperation.INCREMENT
    return " NOT NULL DEFAULT 0" if counted else ""
