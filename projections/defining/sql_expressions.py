"""
Expressions and aggregates of SQL that read models may have, and why others may not.

What is accepted gives the same result each time, in every session and on every server, where times are in UTC.
"""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet

from projections.defining.tables import ColumnOperation
from projections.extras import from_extra

with from_extra("sql"):
    from sqlglot import exp


DIALECT = "postgres"

COMBINED: dict[type[exp.Expr], tuple[str, ColumnOperation]] = {
    exp.Count: ("count", ColumnOperation.INCREMENT),
    exp.Sum: ("sum", ColumnOperation.INCREMENT),
    exp.Min: ("min", ColumnOperation.MINIMUM),
    exp.Max: ("max", ColumnOperation.MAXIMUM),
    exp.LogicalAnd: ("bool_and", ColumnOperation.MINIMUM),
    exp.LogicalOr: ("bool_or", ColumnOperation.MAXIMUM),
    exp.Last: ("last", ColumnOperation.SET),
}
"""The aggregates, and how the value of some events is combined with that of others."""

AVERAGES = (exp.Avg,)
"""Aggregates that are kept as a sum and a count."""

_ACCEPTED: frozenset[type[exp.Expr]] = frozenset({
    exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Paren, exp.Var, exp.DataType, exp.DataTypeParam,
    exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.Neg, exp.Abs, exp.Round, exp.Floor, exp.Ceil, exp.Sign,
    exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Between, exp.In, exp.Is,
    exp.Not, exp.And, exp.Or, exp.Like, exp.ILike, exp.Case, exp.If, exp.Coalesce, exp.Nullif, exp.Greatest, exp.Least,
    exp.Cast, exp.DPipe, exp.Lower, exp.Upper, exp.Length, exp.Substring, exp.Trim, exp.Left, exp.Right, exp.Replace,
    exp.Extract, exp.TimestampTrunc, exp.DateTrunc, exp.AtTimeZone, exp.Interval, exp.IntervalSpan,
    exp.JSONExtract, exp.JSONExtractScalar, exp.JSONPath, exp.JSONPathRoot, exp.JSONPathKey, exp.JSONPathSubscript,
})  # fmt: skip

_IN_A_VIEW = "put it into a view of the table"
_OTHER_ROWS = "a subquery looks at other rows, which change later; write a table handler"
_IN_ORDER = "it depends on the order of events; keep a row for each event, and aggregate in a view"
_AT_ANY_TIME = "it differs each time that an event is handled"
_TEXT_AS_TIME = (
    "a text such as 'now' is another time each time that an event is handled; declare the field as a time in the model"
    ", or keep the text"
)
# Words that PostgreSQL takes for the time of reading, alone or with a time of day.
_WORD = re.compile(
    r"[^a-z]*(now|today|tomorrow|yesterday)([^a-z]|allballs|am|pm|utc|gmt|zulu|z|t)*",
    re.IGNORECASE | re.DOTALL,
)
_OF_TEXT = (
    exp.JSONExtract, exp.JSONExtractScalar, exp.DPipe, exp.Lower, exp.Upper, exp.Substring, exp.Trim, exp.Left,
    exp.Right, exp.Replace,
)  # fmt: skip
_SPREAD = "keep count(x), sum(x) and sum(x * x), and compute it in a view"

REFUSED_CLAUSES = {
    "with_": ("WITH", "write the statement without it; a UNION ALL may stand after FROM in parentheses"),
    "distinct": ("DISTINCT", "a later event may repeat a row; use GROUP BY"),
    "joins": (
        "a join",
        "what an event is joined with may come later; read both by UNION ALL, or join two read models in a view",
    ),
    "laterals": ("LATERAL", "an event is one row; for the items of a list write a table handler"),
    "having": ("HAVING", f"a group may meet the condition later; {_IN_A_VIEW}"),
    "order": ("ORDER BY", "a table has no order; put it into the query that reads the table"),
    "limit": ("LIMIT", f"which rows are the first changes with each event; {_IN_A_VIEW}"),
    "offset": ("OFFSET", f"which rows are the first changes with each event; {_IN_A_VIEW}"),
    "windows": ("a window", f"it looks at other rows, which change later; {_IN_A_VIEW}"),
    "locks": ("FOR UPDATE", "leave it out"),
    "into": ("INTO", "name the table by read_model(..., table='name')"),
}
"""Clauses of a SELECT: how they are called, and why they are refused."""

_REASONS: tuple[tuple[type[exp.Expr], str], ...] = (
    (exp.Window, f"it looks at other rows, which change later; {_IN_A_VIEW}"),
    (exp.Query, _OTHER_ROWS),
    (exp.Subquery, _OTHER_ROWS),
    (exp.Exists, _OTHER_ROWS),
    (exp.ArrayAgg, _IN_ORDER),
    (exp.GroupConcat, _IN_ORDER),
    (exp.CurrentTimestamp, f"{_AT_ANY_TIME}; use db_timestamp, the time of the event"),
    (exp.CurrentDate, f"{_AT_ANY_TIME}; use db_timestamp::date, the day of the event"),
    (exp.Rand, _AT_ANY_TIME),
    (exp.Uuid, f"{_AT_ANY_TIME}; use event_id"),
    (exp.RegexpLike, "servers differ in regular expressions; use LIKE, or write a table handler"),
    (exp.Stddev, _SPREAD),
    (exp.StddevSamp, _SPREAD),
    (exp.Variance, _SPREAD),
    (exp.Placeholder, "a statement has no parameters; write the value"),
    (exp.Parameter, "a statement has no parameters; write the value"),
    (exp.First, "there is no first(); keep min(seq_nr), and look that event up"),
    (exp.PercentileCont, "it needs all values; keep a row for each event, and compute it in a view"),
)
_BY_NAME = {
    "every": "write bool_and",
    "clock_timestamp": f"{_AT_ANY_TIME}; use db_timestamp, the time of the event",
}
_COMPOSED = "give each aggregate a column of its own, and compute with them in a view"
_UNKNOWN = "it is not known to give the same result each time, on every server; write a table handler"


class NotIncremental(Exception):
    """
    A part of a statement cannot be kept up to date.

    Args:
        found: What it is, as SQL.
        reason: Why, and the nearest that works.
    """

    def __init__(self, found: str, reason: str) -> None:
        super().__init__(f"{found} cannot be kept up to date: {reason}")


def check_expression(root: exp.Expr, texts: AbstractSet[str]) -> None:
    """
    Refuse an expression that may give another result another time, or looks at more than one event.

    Args:
        root: The expression.
        texts: The columns that hold texts, or JSON.
    """
    for found in root.walk():
        if type(found) not in _ACCEPTED:
            raise NotIncremental(sql_of(root if isinstance(found, exp.AggFunc) else found), _reason(found))
        if _is_time(found) and is_text(found.this, texts):
            raise NotIncremental(sql_of(found), _TEXT_AS_TIME)
        if isinstance(found, exp.Literal) and found.is_string and _WORD.fullmatch(found.name):
            _check_word(found, texts)


def is_text(root: exp.Expr, texts: AbstractSet[str]) -> bool:
    """Whether the value of an expression may be a text of an event, or is made from one."""
    if isinstance(root, exp.Column):
        return root.name in texts
    if isinstance(root, _OF_TEXT) or (
        isinstance(root, exp.Cast) and root.to.is_type(*exp.DataType.TEXT_TYPES)
    ):
        return True
    if isinstance(root, exp.Predicate | exp.Connector | exp.Cast | exp.Extract):
        return False
    return any(is_text(part, texts) for part in root.iter_expressions())


def _is_time(found: exp.Expr) -> bool:
    return isinstance(found, exp.Cast) and found.to.is_type(*exp.DataType.TEMPORAL_TYPES)


def _check_word(found: exp.Expr, texts: AbstractSet[str]) -> None:
    """Refuse a word that may be a time; where it is compared with a text, or made one, it is none."""
    around = found.parent.parent if isinstance(found.parent, exp.Tuple) else found.parent
    if isinstance(around, exp.Cast) and not _is_time(around):
        return
    if isinstance(around, exp.Predicate) and any(is_text(part, texts) for part in around.iter_expressions()):
        return
    raise NotIncremental(
        sql_of(found), f"{_AT_ANY_TIME}; use db_timestamp, or where it is a text, {sql_of(found)}::text"
    )


def _reason(found: exp.Expr) -> str:
    if isinstance(found, exp.Anonymous) and found.name.lower() in _BY_NAME:
        return _BY_NAME[found.name.lower()]
    reason = next((reason for kind, reason in _REASONS if isinstance(found, kind)), None)
    return reason or (_COMPOSED if type(found) in COMBINED or type(found) in AVERAGES else _UNKNOWN)


def sql_of(found: exp.Expr) -> str:
    """SQL with all names in quotes, so that none is taken for a keyword."""
    return found.sql(dialect=DIALECT, identify=True)
