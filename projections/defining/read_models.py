"""Read models that are declared in SQL: what :func:`projections.read_model` says, checked when the class is defined."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from journal import event_type_of
from projections.defining.sql_fields import EVENT_COLUMNS, columns_of
from projections.defining.sql_rendering import Statement, only_models_read
from projections.defining.tables import ColumnOperation, Table
from projections.errors import InvalidHandler

M = TypeVar("M", bound=BaseModel)


class Relation(Generic[M]):
    """What :func:`events` declares: the events of a model, under the name of the attribute."""

    def __init__(self, model: type[M]) -> None:
        self.model = model
        self.name = ""

    def __set_name__(self, _owner: type, name: str) -> None:
        self.name = name

    def columns(self) -> tuple[dict[str, str], set[str]]:
        """The columns, each with the reason why a statement cannot read it, or an empty text; and which have texts."""
        found = columns_of(self.model)
        fields = {name: column.unusable for name, column in found.items()}
        own = {
            name: f"it is a field of {self.model.__name__} and the event's own" if name in fields else ""
            for name in EVENT_COLUMNS
        }
        types = EVENT_COLUMNS | {name: column.type for name, column in found.items()}
        return fields | own, {name for name, pg_type in types.items() if pg_type in {"text", "jsonb"}}


class SqlReadModel:
    """
    What :func:`read_model` declares: a table, and the statement that says what is in it.

    ``table``, ``statement``, ``models`` and ``by_model`` are there once the class is a projection.
    """

    table: Table
    statement: Statement
    models: Mapping[str, type[BaseModel]]
    by_model: bool
    """Whether models have to read every event: SQL cannot know of a field that it reads it as the model does."""

    def __init__(self, sql: str, table: str | tuple[str, str] | None) -> None:
        self.sql = sql
        self.text = " ".join(sql.split())
        self.name = ""
        self._table = table

    def __set_name__(self, _owner: type, name: str) -> None:
        self.name = name

    def check(self, relations: Mapping[str, Relation[Any]], owner: str) -> None:
        """Check the statement, and declare the table; raises InvalidHandler."""
        # Only who declares such a read model needs the parser.
        from projections.defining.accepted_sql import parse_statement  # noqa: PLC0415

        what = f"read model {owner}.{self.name}"
        columns = {name: relation.columns() for name, relation in relations.items()}
        statement = parse_statement(self.sql, columns, what)
        self.statement = statement
        self.models = {name: relations[name].model for name in statement.reads}
        models = {event_type_of(model).name: model for model in self.models.values()}
        if len(models) < len(set(self.models.values())):
            raise InvalidHandler(
                f"{what} reads two models of one event type: read one, with the fields of both"
            )
        self.by_model = only_models_read(statement, self.models)
        by_operation: dict[ColumnOperation, list[str]] = {operation: [] for operation in ColumnOperation}
        for output in statement.outputs:
            if output.operation is not None:
                by_operation[output.operation].append(output.name)
        try:
            self.table = Table(
                self._table or self.name,
                key=statement.key,
                set=by_operation[ColumnOperation.SET],
                increment=by_operation[ColumnOperation.INCREMENT],
                minimum=by_operation[ColumnOperation.MINIMUM],
                maximum=by_operation[ColumnOperation.MAXIMUM],
                source=statement.source_column,
            )
        except ValueError as error:
            raise InvalidHandler(f"{what}: {error}") from None


def events(model: type[M]) -> Relation[M]:
    """
    Name the events of a payload model, so that the statements of read models can read them.

    The name of the attribute stands after FROM. Its columns are the fields of the model, and ``source_id``, ``seq_nr``,
    ``db_timestamp``, ``entity_type`` and ``event_id`` of the event.

    Args:
        model: The pydantic class of the payloads; its event type and version count.

    Raises:
        InvalidHandler: It is not a pydantic model.
    """
    if not issubclass(model, BaseModel):
        raise InvalidHandler(f"events({model!r}): it takes a pydantic model class")
    return Relation(model)


def read_model(sql: str, *, table: str | tuple[str, str] | None = None) -> SqlReadModel:
    """
    Declare a read model by a SELECT over events, in place of handlers.

    The table is kept up to date by one statement for each batch, inside PostgreSQL, so payloads do not leave it. It is
    created when a worker starts and it is not there. Which statements can be kept up to date, the guide on read models
    in SQL lists.

    Args:
        sql: ``SELECT … FROM … [WHERE …] [GROUP BY …]`` as PostgreSQL has it. What it groups by is the key of the table;
            without GROUP BY, each event is a row, with ``source_id`` and ``seq_nr`` as its key.
        table: The table: ``"name"``, ``"schema.name"`` or ``("schema", "name")``; by default the attribute's name.

    Raises:
        ImportError: The extra ``sql`` is not installed.
        InvalidHandler: When the class becomes a projection: the statement cannot be kept up to date; the message says
            why, and what can be written instead.
    """
    return SqlReadModel(sql, table)


def read_models_of(cls: type[Any]) -> tuple[SqlReadModel, ...]:
    """The read models that a class declares, checked, in the order of their tables; raises InvalidHandler."""
    relations: dict[str, Relation[Any]] = {}
    found: list[SqlReadModel] = []
    for name in dir(cls):
        value = getattr(cls, name, None)
        if isinstance(value, Relation):
            relations[name] = value
        elif isinstance(value, SqlReadModel):
            found.append(value)
    for one in found:
        one.check(relations, cls.__qualname__)
    names = [str(one.table) for one in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidHandler(f"{cls.__qualname__}: two read models fill table {twice[0]}: give one table='…'")
    return tuple(sorted(found, key=lambda one: one.table.qualified_name))
