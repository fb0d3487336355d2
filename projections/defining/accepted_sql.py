"""
Statements of read models: what of SQL can be kept up to date event by event.

Accepted is a SELECT whose result over all events is its result over some of them, combined with its result over the
others: rows of events, or groups with sums, counts, least and greatest values, or the last of a source. Source of the
idea: A. Gupta and I. S. Mumick, Maintenance of Materialized Views, 1995 (self-maintainable aggregates).
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TypeAlias

from projections.defining.sql_expressions import (
    AVERAGES,
    COMBINED,
    DIALECT,
    REFUSED_CLAUSES,
    NotIncremental,
    check_expression,
    is_text,
    sql_of,
)
from projections.defining.sql_fields import short_name
from projections.defining.sql_rendering import Output, Statement
from projections.defining.sql_text import Piece, WrittenStatement, expression
from projections.defining.sql_text import aggregate as aggregated
from projections.defining.tables import ColumnOperation
from projections.errors import InvalidHandler
from projections.extras import from_extra

with from_extra("sql"):
    from sqlglot import errors, exp, parse
    from sqlglot.optimizer.normalize_identifiers import normalize_identifiers


_CLAUSES = {"expressions", "from_", "where", "group"}
_ORDERED = ("source_id", "seq_nr")


Columns: TypeAlias = tuple[Mapping[str, str], AbstractSet[str]]
"""The columns of a relation, each with the reason why it cannot be read, or an empty text; and which have texts."""


def parse_statement(sql: str, relations: Mapping[str, Columns], what: str) -> Statement:
    """
    Check that a statement can be kept up to date, and take it to pieces.

    Args:
        sql: A SELECT as PostgreSQL has it.
        relations: By the names that may stand after FROM: their columns.
        what: Names the read model, for errors.

    Raises:
        InvalidHandler: It cannot be kept up to date, or names what is not there; with the nearest that works.
    """
    try:
        statements = parse(sql, dialect=DIALECT)
    except errors.SqlglotError as error:
        raise InvalidHandler(f"{what} is not valid SQL: {' '.join(str(error).split())[:300]}") from None
    if len(statements) != 1 or not isinstance(statements[0], exp.Select):
        raise InvalidHandler(f"{what} is not one SELECT: {_instead(statements[0])}")
    try:
        select = normalize_identifiers(statements[0], dialect=DIALECT)
        written = WrittenStatement(sql, select)
        statement = _Reader(relations, written).read(select)
        written.check()
    except NotIncremental as error:
        raise InvalidHandler(f"{what}: {error}") from None
    except _Wrong as error:
        raise InvalidHandler(f"{what} {error}") from None
    return statement


def _instead(found: exp.Expr | None) -> str:
    """What to write in place of another statement than a SELECT."""
    if isinstance(found, exp.Union):
        return "put UNION ALL into parentheses after FROM, and group outside of them"
    if isinstance(found, exp.Delete):
        return (
            "a row that an event deletes may get more from an event that is handled later and happened before; count "
            "down, sum(n) with -1 for such an event by UNION ALL, or keep last(gone) for each source_id, and read the "
            "table by a view"
        )
    return "write SELECT … FROM … [WHERE …] [GROUP BY …]"


class _Wrong(Exception):
    """A statement says what cannot be; the message goes on after its name."""


@dataclass(frozen=True, slots=True)
class _Scope:
    """What a SELECT reads: its name, the columns with why not, which are the event's own, and which have texts."""

    alias: str
    columns: Mapping[str, str]
    own: Mapping[str, str]
    used: set[str]
    texts: AbstractSet[str]


class _Reader:
    def __init__(self, relations: Mapping[str, Columns], written: WrittenStatement) -> None:
        self._relations = relations
        self._written = written
        self._reads: dict[str, set[str]] = {}

    def read(self, select: exp.Select) -> Statement:
        scope = self._scope(select)
        _condition(select, scope)
        grouped = _grouped_by(select)
        clauses = self._written.clauses()
        outputs, averages = _outputs(select, scope, clauses.selected, self._written)
        if grouped is None:
            outputs = _rows(outputs, scope)
        else:
            _check_groups(select, grouped)
        keys = {scope.own.get(o.argument, ""): o.name for o in outputs if o.operation is None}
        number = next((name for name, own in scope.own.items() if own == "seq_nr"), None)
        if any(output.aggregate == "last" for output in outputs):
            self._check_last(keys, number)
        return Statement(
            tuple(outputs), tuple(averages), self._written.text(clauses.source), self._written.text(clauses.where),
            grouped is not None,
            {name: frozenset(used) for name, used in self._reads.items()}, keys.get("source_id"), number,
        )  # fmt: skip

    def _scope(self, select: exp.Select) -> _Scope:
        """Check the clauses and the names of a SELECT; its columns lose what stands before a dot."""
        for clause, value in select.args.items():
            if value and clause not in _CLAUSES:
                raise NotIncremental(
                    *REFUSED_CLAUSES.get(clause, (clause.strip("_").upper(), "leave it out"))
                )
        if (found := select.args.get("from_")) is None:
            raise _Wrong(f"has no FROM: read {self._known()}")
        scope = (
            self._derived(found.this) if isinstance(found.this, exp.Subquery) else self._events(found.this)
        )
        aliases = {one.alias for one in select.selects if one.alias}
        for column in _columns(select):
            if column.args.get("db") or (column.table and column.table != scope.alias):
                raise _Wrong(f"reads {sql_of(column)}, and {scope.alias} is all that stands after FROM")
            column.set("table", None)
            of_group = column.name in aliases and column.find_ancestor(exp.Group)
            if column.name not in scope.columns and of_group:
                continue
            _check_column(column.name, scope)
            scope.used.add(column.name)
        return scope

    def _known(self) -> str:
        return ", ".join(self._relations) or "an attribute of the class that is events(Model)"

    def _events(self, table: exp.Expr) -> _Scope:
        if not isinstance(table, exp.Table) or table.db or table.name not in self._relations:
            raise _Wrong(f"reads {sql_of(table)}, and only events can be read: {self._known()}")
        if table.args.get("joins"):
            raise NotIncremental(*REFUSED_CLAUSES["joins"])
        columns, texts = self._relations[table.name]
        own = {f'"{name}"': name for name in _ORDERED if not columns.get(name, "-")}
        used = self._reads.setdefault(table.name, set())
        return _Scope(table.alias_or_name, columns, own, used, texts)

    def _derived(self, subquery: exp.Subquery) -> _Scope:
        """Several kinds of events, one below the other."""
        branches = [(branch, self._scope(branch)) for branch in _branches(subquery.this)]
        names = [one.alias_or_name for one in branches[0][0].selects]
        if "" in names or len(set(names)) < len(names):
            raise _Wrong("has columns in parentheses that are not named, or twice: … AS name")
        places: list[set[str]] = [set() for _ in names]
        texts: set[str] = set()
        for branch, scope in branches:
            if branch.args.get("group"):
                raise NotIncremental("GROUP BY in parentheses", "group by it outside of them")
            if len(branch.selects) != len(names):
                raise _Wrong(
                    f"has SELECTs of {len(names)} and of {len(branch.selects)} columns in its UNION ALL"
                )
            _condition(branch, scope)
            for name, place, one in zip(names, places, branch.selects, strict=True):
                check_expression(one.unalias(), scope.texts)
                if is_text(one.unalias(), scope.texts):
                    texts.add(name)
                place.add(scope.own.get(sql_of(one.unalias()), ""))
        own = {f'"{name}"': place.pop() for name, place in zip(names, places, strict=True) if len(place) == 1}
        return _Scope(
            subquery.alias, dict.fromkeys(names, ""), {name: column for name, column in own.items() if column},
            set(), texts,
        )  # fmt: skip

    def _check_last(self, keys: Mapping[str, str], number: str | None) -> None:
        if "source_id" not in keys:
            raise _Wrong(
                "has last(), the last value of a source, for only the events of one source have an order: "
                "add source_id to SELECT and to GROUP BY"
            )
        if number is None:
            raise _Wrong("has last(), which needs the order of events: select seq_nr in the parentheses")
        for used in self._reads.values():
            used.add("seq_nr")


def _columns(select: exp.Select) -> list[exp.Column]:
    """The columns that a SELECT names itself, and not one inside of it."""
    return [one for one in select.find_all(exp.Column) if one.find_ancestor(exp.Select) is select]


def _check_column(name: str, scope: _Scope) -> None:
    reason = scope.columns.get(name)
    if reason is None:
        raise _Wrong(f"reads column {name!r}, which {scope.alias} does not have{_near(name, scope.columns)}")
    if reason:
        raise _Wrong(f"reads column {name!r} of {scope.alias}, which SQL cannot: {reason}")


def _near(name: str, columns: Mapping[str, str]) -> str:
    cased = next((column for column in columns if column.lower() == name.lower()), None)
    if cased is not None:
        return f'; write "{cased}" in quotes, for its name has capital letters'
    close = difflib.get_close_matches(name, columns, 1)
    return f"; did you mean {close[0]!r}?" if close else f"; it has {', '.join(columns)}"


def _branches(found: exp.Expr) -> Iterator[exp.Select]:
    if isinstance(found, exp.Union):
        if found.args.get("distinct"):
            raise NotIncremental("UNION", "a later event may repeat a row; write UNION ALL")
        for clause in ("order", "limit", "offset", "with_"):
            if found.args.get(clause):
                raise NotIncremental(*REFUSED_CLAUSES[clause])
        yield from _branches(found.this)
        yield from _branches(found.expression)
    elif isinstance(found, exp.Select):
        yield found
    else:
        raise NotIncremental(
            sql_of(found), "only SELECTs with UNION ALL between them may stand in parentheses"
        )


def _condition(select: exp.Select, scope: _Scope) -> None:
    if (where := select.args.get("where")) is not None:
        check_expression(where.this, scope.texts)


def _grouped_by(select: exp.Select) -> Sequence[exp.Expr] | None:
    if (group := select.args.get("group")) is None:
        if any(one.find(exp.AggFunc) for one in select.selects):
            raise _Wrong(
                "has an aggregate and no GROUP BY: group by what identifies a row, such as entity_type"
            )
        return None
    several = (exp.Rollup, exp.Cube, exp.GroupingSets)
    if group.find(*several) or any(value for name, value in group.args.items() if name != "expressions"):
        raise NotIncremental(sql_of(group).strip(), "keep one read model for each grouping")
    found: Sequence[exp.Expr] = group.expressions
    return found


def _outputs(
    select: exp.Select, scope: _Scope, pieces: Sequence[Piece], written: WrittenStatement
) -> tuple[list[Output], list[tuple[str, str, str]]]:
    outputs: list[Output] = []
    averages: list[tuple[str, str, str]] = []
    for one, piece in zip(select.selects, pieces, strict=True):
        name, found = one.alias_or_name, one.unalias()
        _check_name(one, name)
        kind, body = type(_unfiltered(found)), expression(piece, one)
        if kind in AVERAGES:
            outputs += [
                _aggregate(f"{name}_{part}", found, part, scope, body, written) for part in ("sum", "count")
            ]
            averages.append((name, f"{name}_sum", f"{name}_count"))
        elif kind in COMBINED:
            outputs.append(_aggregate(name, found, COMBINED[kind][0], scope, body, written))
        else:
            check_expression(found, scope.texts)
            outputs.append(Output(name, written.text(body), "", "", None))
    names = Counter([*(output.name for output in outputs), *(name for name, _, _ in averages)])
    if twice := [name for name, count in names.items() if count > 1]:
        raise _Wrong(f"has two columns {twice[0]!r}: give one another name")
    return outputs, averages


def _check_name(one: exp.Expr, name: str) -> None:
    found = one.unalias()
    if isinstance(found, exp.Star) or (isinstance(found, exp.Column) and isinstance(found.this, exp.Star)):
        raise _Wrong("selects *: name the columns")
    if not name or not (isinstance(one, exp.Alias) or isinstance(found, exp.Column)):
        raise _Wrong(f"has a column without a name: {sql_of(one)} AS name")
    if short_name(name) != name:
        raise _Wrong(
            f"has a column whose name PostgreSQL would cut, {name!r}: … AS name, of at most 63 bytes"
        )


def _unfiltered(found: exp.Expr) -> exp.Expr:
    inner: exp.Expr = found.this if isinstance(found, exp.Filter) else found
    return inner


def _aggregate(  # noqa: PLR0917 - of one place
    name: str, found: exp.Expr, aggregate: str, scope: _Scope, piece: Piece, written: WrittenStatement
) -> Output:
    inner = _unfiltered(found)
    value, where = map(written.text, aggregated(piece))
    operation = ColumnOperation.INCREMENT if type(inner) in AVERAGES else COMBINED[type(inner)][1]
    if isinstance(found, exp.Filter):
        check_expression(found.expression.this, scope.texts)
    if where and aggregate == "last":
        raise NotIncremental(
            sql_of(found), "a source may have no such event yet; put the condition after WHERE"
        )
    argument = inner.this
    if isinstance(argument, exp.Distinct):
        raise NotIncremental(
            sql_of(found),
            "all values that were counted would have to be known; add the value to GROUP BY, and count in a view",
        )
    if isinstance(argument, exp.Star):
        return Output(name, "*", aggregate, where, operation)
    if argument is None or inner.args.get("expressions") or isinstance(argument, exp.Order):
        raise NotIncremental(sql_of(found), "an aggregate has one value, and nothing alongside it")
    check_expression(argument, scope.texts)
    return Output(name, value, aggregate, where, operation)


def _rows(outputs: Sequence[Output], scope: _Scope) -> list[Output]:
    """A row for each event: its source and number are the key, and all else is set."""
    keys = {scope.own[output.argument]: output.name for output in outputs if output.argument in scope.own}
    if keys.keys() != set(_ORDERED):
        raise _Wrong(
            "has no GROUP BY, so it has a row for each event: select source_id and seq_nr, which identify it, or add "
            "GROUP BY"
        )
    of_key = set(keys.values())
    return [
        one if one.name in of_key else Output(one.name, one.argument, "", "", ColumnOperation.SET)
        for one in outputs
    ]


def _check_groups(select: exp.Select, groups: Sequence[exp.Expr]) -> None:
    """What is grouped by is what is selected without an aggregate: the key of the table."""
    keys = {one.alias_or_name: sql_of(one.unalias()) for one in select.selects if not one.find(exp.AggFunc)}
    if not keys:
        raise _Wrong("selects nothing that identifies a row: select what it groups by")
    grouped = {_group(select, keys, one) for one in groups}
    if missing := [sql for sql in keys.values() if sql not in grouped]:
        raise _Wrong(f"selects {missing[0]}, which is neither in GROUP BY nor an aggregate")


def _group(select: exp.Select, keys: Mapping[str, str], found: exp.Expr) -> str:
    """What an item of GROUP BY stands for: an expression, or a selected column by its place or its name."""
    if isinstance(found, exp.Literal) and found.is_int:
        place = int(found.name)
        if 1 <= place <= len(select.selects):
            return sql_of(select.selects[place - 1].unalias())
        raise _Wrong(f"groups by {place}, and there are {len(select.selects)} columns")
    sql = sql_of(found)
    if sql in keys.values():
        return sql
    if isinstance(found, exp.Column) and found.name in keys:
        return keys[found.name]
    raise _Wrong(f"groups by {sql} and does not select it: select it, for it identifies a row")
