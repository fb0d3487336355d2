"""Which statements can be kept up to date, and what is said of the others."""
# ruff: noqa: E501 - a statement is read in one line

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, NewType
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, Field, model_validator

from journal import EventEnvelope, event_type
from projections import AtLeastOnce, InvalidHandler, Session, events, handles, projection, reacts, read_model
from projections.defining import projection_of
from projections.defining.sql_fields import columns_of, quote_literal
from projections.running.event_columns import given_columns
from projections.running.read_model_writer import _page_sql
from tests.fixtures.read_models import documented


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Landed(BaseModel):
    carrier: str
    day: date
    delay: int
    price: float = 0.0
    fare: Decimal = Decimal(0)
    on_time: bool = True
    flightNo: str = ""
    items: list[str] = Field(default_factory=list)
    seq_nr: int = 0


class Departed(BaseModel):
    carrier: str
    delay: int


def declared(sql: str) -> Any:
    @projection("p", entity_type="plane")
    class P:
        landed = events(Landed)
        departed = events(Departed)
        model = read_model(sql, table="t")

    (found,) = projection_of(P).read_models
    return found


ACCEPTED = [
    ("SELECT carrier, count(*) AS n FROM landed GROUP BY carrier", ("carrier",)),
    ("SELECT carrier, count(delay) AS n FROM landed GROUP BY 1", ("carrier",)),
    ("SELECT lower(carrier) AS c, sum(delay) AS s FROM landed GROUP BY lower(carrier)", ("c",)),
    ("SELECT lower(carrier) AS c, sum(delay) AS s FROM landed GROUP BY c", ("c",)),
    ("SELECT l.carrier, min(l.delay) AS a, max(l.delay) AS b FROM landed AS l WHERE l.delay > 0 GROUP BY l.carrier", ("carrier",)),
    ("SELECT carrier, bool_and(on_time) AS a, bool_or(on_time) AS b FROM landed GROUP BY carrier", ("carrier",)),
    ("SELECT carrier, avg(delay) AS mean FROM landed GROUP BY carrier", ("carrier",)),
    ("SELECT carrier, count(*) FILTER (WHERE delay > 15) AS late FROM landed GROUP BY carrier", ("carrier",)),
    ("SELECT source_id, last(carrier) AS carrier FROM departed GROUP BY source_id", ("source_id",)),
    ("SELECT carrier, date_trunc('month', db_timestamp) AS m, count(*) AS n FROM landed GROUP BY carrier, m", ("carrier", "m")),
    ("SELECT carrier, CASE WHEN delay > 15 THEN 'late' ELSE 'fine' END AS k, count(*) AS n FROM landed GROUP BY 1, 2", ("carrier", "k")),
    ('SELECT "flightNo", count(*) AS n FROM landed GROUP BY "flightNo"', ("flightNo",)),
    ("SELECT source_id, db_timestamp, event_id, count(*) AS n FROM departed GROUP BY 1, 2, 3", ("source_id", "db_timestamp", "event_id")),
    ("SELECT source_id, seq_nr, carrier, delay * 2 AS d FROM departed", ("source_id", "seq_nr")),
    ("SELECT c, sum(n) AS n FROM (SELECT carrier AS c, 1 AS n FROM landed UNION ALL SELECT carrier, -1 FROM departed) AS u GROUP BY c", ("c",)),
    ("SELECT carrier, sum(fare::numeric) AS s FROM landed WHERE carrier IN ('UA', 'AA') AND NOT on_time GROUP BY carrier", ("carrier",)),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "key"), ACCEPTED, ids=[sql for sql, _ in ACCEPTED])
def test_is_accepted(sql: str, key: tuple[str, ...]) -> None:
    assert declared(sql).table.key == key


REFUSED = [
    ("SELECT carrier FROM", "is not valid SQL"),
    ("DELETE FROM landed", "is not one SELECT: .* count down"),
    ("UPDATE landed SET delay = 1", "is not one SELECT: write SELECT"),
    ("SELECT carrier FROM landed UNION ALL SELECT carrier FROM departed", "is not one SELECT: .* after FROM"),
    ("SELECT 1; SELECT 2", "is not one SELECT"),
    ("SELECT count(*) AS n", "has no FROM: read departed, landed"),
    ("SELECT carrier, count(*) AS n FROM flights GROUP BY 1", "only events can be read: departed, landed"),
    ("SELECT carrier, count(*) AS n FROM public.landed GROUP BY 1", "only events can be read"),
    ("WITH x AS (SELECT 1) SELECT carrier, count(*) AS n FROM landed GROUP BY 1", "WITH cannot be kept up to date"),
    ("SELECT DISTINCT carrier FROM landed", "DISTINCT cannot .* use GROUP BY"),
    ("SELECT carrier, count(*) AS n FROM landed GROUP BY 1 HAVING count(*) > 1", "HAVING cannot .* view"),
    ("SELECT carrier, count(*) AS n FROM landed GROUP BY 1 ORDER BY 2", "ORDER BY cannot"),
    ("SELECT carrier, count(*) AS n FROM landed GROUP BY 1 LIMIT 10", "LIMIT cannot"),
    ("SELECT carrier, count(*) AS n FROM landed GROUP BY 1 OFFSET 10", "OFFSET cannot"),
    ("SELECT l.carrier, count(*) AS n FROM landed l JOIN departed d ON d.carrier = l.carrier GROUP BY 1", "a join cannot .* UNION ALL"),
    ("SELECT l.carrier, count(*) AS n FROM landed l, departed d GROUP BY 1", "a join cannot"),
    ("SELECT carrier, count(*) AS n FROM landed GROUP BY ROLLUP (carrier)", "one read model for each grouping"),
    ("SELECT carrier, count(*) AS n FROM landed GROUP BY 3", "groups by 3, and there are 2 columns"),
    ("SELECT count(*) AS n FROM landed GROUP BY carrier", "selects nothing that identifies a row"),
    ("SELECT day, count(*) AS n FROM landed GROUP BY carrier, day", 'groups by "carrier" and does not select it'),
    ("SELECT carrier, day, count(*) AS n FROM landed GROUP BY carrier", 'selects "day", which is neither'),
    ("SELECT count(*) AS n FROM landed", "has an aggregate and no GROUP BY"),
    ("SELECT carrier FROM landed", "select source_id and seq_nr"),
    ("SELECT * FROM landed", r"selects \*: name the columns"),
    ("SELECT carrier, count(*) FROM landed GROUP BY 1", r"has a column without a name: COUNT\(\*\) AS name"),
    ("SELECT carrier, count(*) AS n, sum(delay) AS n FROM landed GROUP BY 1", "has two columns 'n'"),
    ("SELECT carrier, avg(delay) AS a, count(*) AS a_count FROM landed GROUP BY 1", "has two columns 'a_count'"),
    ("SELECT carrier, count(DISTINCT day) AS n FROM landed GROUP BY 1", "add the value to GROUP BY"),
    ("SELECT carrier, array_agg(day) AS n FROM landed GROUP BY 1", "depends on the order of events"),
    ("SELECT carrier, string_agg(carrier, ',') AS n FROM landed GROUP BY 1", "depends on the order of events"),
    ("SELECT carrier, sum(delay) / count(*) AS n FROM landed GROUP BY 1", "give each aggregate a column of its own"),
    ("SELECT carrier, stddev(delay) AS n FROM landed GROUP BY 1", r"keep count\(x\), sum\(x\)"),
    ("SELECT carrier, percentile_cont(0.5) WITHIN GROUP (ORDER BY delay) AS n FROM landed GROUP BY 1", "cannot be kept"),
    ("SELECT carrier, row_number() OVER (ORDER BY delay) AS n FROM landed GROUP BY 1", "looks at other rows"),
    ("SELECT carrier, sum((SELECT 1)) AS n FROM landed GROUP BY 1", "a subquery looks at other rows"),
    ("SELECT carrier, count(*) AS n FROM landed WHERE EXISTS (SELECT 1 FROM departed) GROUP BY 1", "a subquery looks"),
    ("SELECT carrier, count(*) AS n FROM landed WHERE carrier IN (SELECT 'x') GROUP BY 1", "a subquery looks"),
    ("SELECT carrier, count(*) AS n FROM landed WHERE count(*) > 1 GROUP BY 1", "give each aggregate a column"),
    ("SELECT carrier, max(now()) AS n FROM landed GROUP BY 1", "differs each time .* db_timestamp"),
    ("SELECT carrier, max(current_date) AS n FROM landed GROUP BY 1", "differs each time"),
    ("SELECT carrier, max(random()) AS n FROM landed GROUP BY 1", "differs each time"),
    ("SELECT carrier, max(my_function(delay)) AS n FROM landed GROUP BY 1", "not known to give the same result"),
    ("SELECT carrier, max(pg_sleep(10)) AS n FROM landed GROUP BY 1", "not known to give the same result"),
    ("SELECT carrier, every(on_time) AS n FROM landed GROUP BY 1", "write bool_and"),
    ("SELECT carrier, count(*) AS n FROM landed WHERE carrier ~ 'a' GROUP BY 1", "regular expressions"),
    ("SELECT carrier, max(delay + $1) AS n FROM landed GROUP BY 1", "no parameters"),
    ("SELECT carrier, last(delay) AS n FROM landed GROUP BY 1", "add source_id"),
    ("SELECT source_id, last(delay) FILTER (WHERE delay > 0) AS n FROM departed GROUP BY 1", "put the condition after WHERE"),
    ("SELECT carrier, first(delay) AS n FROM landed GROUP BY 1", r"there is no first\(\)"),
    ("SELECT carier, count(*) AS n FROM landed GROUP BY 1", "reads column 'carier', which landed does not have; did you mean 'carrier'"),
    ("SELECT flightNo, count(*) AS n FROM landed GROUP BY 1", 'write "flightNo" in quotes'),
    ("SELECT d.carrier, count(*) AS n FROM landed GROUP BY 1", "landed is all that stands after FROM"),
    ("SELECT carrier, max(items) AS n FROM landed GROUP BY 1", "its default is made by a function"),
    ("SELECT carrier, max(seq_nr) AS n FROM landed GROUP BY 1", "a field of Landed and the event's own"),
    ("SELECT c, count(*) AS n FROM (SELECT carrier AS c FROM landed UNION SELECT carrier FROM departed) u GROUP BY c", "write UNION ALL"),
    ("SELECT c, count(*) AS n FROM (SELECT carrier AS c FROM landed GROUP BY 1) u GROUP BY c", "group by it outside"),
    ("SELECT c, count(*) AS n FROM (SELECT carrier AS c FROM landed UNION ALL SELECT carrier, 1 FROM departed) u GROUP BY c", "of 1 and of 2 columns"),
    ("SELECT c, count(*) AS n FROM (SELECT carrier AS c FROM landed LIMIT 1) u GROUP BY c", "LIMIT cannot"),
    ("SELECT c, count(*) AS n FROM (SELECT carrier AS c FROM landed UNION ALL SELECT carrier FROM departed LIMIT 1) u GROUP BY c", "LIMIT cannot"),
    ("SELECT c, count(*) AS n FROM (SELECT carrier AS c FROM landed UNION ALL SELECT carrier FROM departed ORDER BY 1) u GROUP BY c", "ORDER BY cannot"),
    ("SELECT c, max(n) AS n FROM (SELECT carrier AS c, random() AS n FROM landed) u GROUP BY c", "differs each time"),
    ("SELECT c, count(*) AS n FROM (SELECT carrier AS c FROM landed WHERE db_timestamp < now()) u GROUP BY c", "differs each time"),
    ("SELECT carrier, count(*) FILTER (WHERE db_timestamp < now()) AS n FROM landed GROUP BY 1", "differs each time"),
    ("SELECT x, count(*) AS n FROM (SELECT carrier AS c FROM landed) u GROUP BY x", "reads column 'x', which u does not have"),
    ("SELECT carrier, count(*) AS n FROM landed FOR UPDATE", "FOR UPDATE"),
    ("SELECT carrier, max(ifnull(delay, 0)) AS n FROM landed GROUP BY 1", r"ifnull\(…\) .* no such function; write coalesce"),
    ("SELECT carrier, max(nvl(delay, 0)) AS n FROM landed GROUP BY 1", "write coalesce"),
    ("SELECT carrier, max(if(on_time, 1, 0)) AS n FROM landed GROUP BY 1", "write CASE WHEN"),
    ("SELECT carrier, max(iif(on_time, 1, 0)) AS n FROM landed GROUP BY 1", "write CASE WHEN"),
    ("SELECT carrier, max(delay) AS n FROM landed WHERE delay == 1 GROUP BY 1", "== cannot be kept"),
    ("SELECT carrier, max(delay) AS n FROM landed WHERE delay <=> 1 GROUP BY 1", "<=> cannot be kept"),
    ("SELECT carrier, logical_and(on_time) AS n FROM landed GROUP BY 1", "logical_and"),
    ("SELECT carrier, max(ucase(carrier)) AS n FROM landed GROUP BY 1", "ucase"),
    ("SELECT carrier, max(delay::int128) AS n FROM landed GROUP BY 1", "cannot be kept|not valid"),
    ("SELECT carrier, max('now'::timestamptz) AS n FROM landed GROUP BY 1", "differs each time .* use db_timestamp"),
    ("SELECT carrier, max('today'::date) AS n FROM landed GROUP BY 1", "differs each time"),
    ("SELECT carrier, max(CAST('tomorrow' AS date)) AS n FROM landed GROUP BY 1", "differs each time"),
    ("SELECT carrier, max(date 'yesterday') AS n FROM landed GROUP BY 1", "differs each time"),
    ("SELECT carrier, max(timestamp with time zone ' NOW ') AS n FROM landed GROUP BY 1", "differs each time"),
    ("SELECT carrier, count(*) AS n FROM landed WHERE day > 'today' GROUP BY 1", "differs each time"),
    ("SELECT carrier, count(*) AS n FROM landed WHERE day IN ('2013-01-01', 'today 12:00') GROUP BY 1", "differs each time"),
    ("SELECT carrier, count(*) AS n FROM landed WHERE date_trunc('month', day::timestamp) < 'now' GROUP BY 1", "differs each time"),
    ("SELECT carrier, max(CASE WHEN on_time THEN 'today' ELSE day END) AS n FROM landed GROUP BY 1", "differs each time"),
    ("SELECT carrier, max(coalesce(day, 'tomorrow')) AS n FROM landed GROUP BY 1", "differs each time"),
    ("SELECT carrier, max(carrier::date) AS n FROM landed GROUP BY 1", "a text such as 'now' .* declare the field"),
    ("SELECT carrier, max((carrier || '')::timestamptz) AS n FROM landed GROUP BY 1", "a text such as 'now'"),
    ("SELECT carrier, max(CAST(coalesce(lower(carrier), 'x') AS time)) AS n FROM landed GROUP BY 1", "a text such as 'now'"),
    ("SELECT c, max(d) AS d FROM (SELECT carrier AS c, carrier AS e, day AS d FROM landed UNION ALL SELECT carrier, carrier, 'now' FROM departed) AS u GROUP BY c", "differs each time"),
    ("SELECT c, max(e::date) AS d FROM (SELECT carrier AS c, carrier AS e FROM landed) AS u GROUP BY c", "a text such as 'now'"),
    (f"SELECT carrier, max(delay) AS {'n' * 64} FROM landed GROUP BY 1", "of at most 63 bytes"),
]  # fmt: skip


# As it is written, as PostgreSQL is given it: only names are in quotes, and comments are left out.
WRITTEN = [
    ("SELECT l.carrier, max(L.fare -> '') AS m FROM landed AS l WHERE l.carrier ->> '' = 'a' GROUP BY 1",
        ('"carrier"', """"fare" -> ''"""), '"landed" AS "l"', """"carrier" ->> '' = 'a'"""),
    ("SELECT carrier::char(3) AS c, max(date_part('year', day)) y FROM landed WHERE Delay%2=1 GROUP BY 1",
        ('"carrier"::char(3)', """date_part('year', "day")"""), '"landed"', '"delay"%2=1'),
    ("SELECT carrier AS c, count(*) FILTER (WHERE delay is distinct from 1) AS n, sum ( delay + 1 ) -- all\n/* of */FROM landed GROUP BY 1".replace(") -- all", ") AS s -- all"),
        ('"carrier"', "*", '"delay" + 1'), '"landed"', ""),
    ("SELECT entity_type, max('a\\b') AS m, min('it''s'::text) AS i, max(extract(EPOCH FROM db_timestamp)) AS e FROM landed GROUP BY 1",
        ('"entity_type"', r"E'a\\b'", "'it''s'::text", 'extract(EPOCH FROM "db_timestamp")'), '"landed"', ""),
    ("SELECT c, sum(n) AS n FROM (SELECT landed.carrier c, 1 AS n FROM landed UNION ALL SELECT carrier, -1 FROM departed) u WHERE u.n > 0 GROUP BY u.c",
        ('"c"', '"n"'), '(SELECT "carrier" "c", 1 AS "n" FROM "landed" UNION ALL SELECT "carrier", -1 FROM "departed") "u"', '"n" > 0'),
    ("SELECT carrier, CASE WHEN day > date '2013-01-01' THEN 1 ELSE 2 END AS k, count(*) AS n FROM landed WHERE carrier = 'now' GROUP BY 1, 2",
        ('"carrier"', """CASE WHEN "day" > date '2013-01-01' THEN 1 ELSE 2 END""", "*"), '"landed"', """"carrier" = 'now'"""),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "outputs", "source", "where"), WRITTEN, ids=[one[0] for one in WRITTEN])
def test_what_runs_is_what_is_written(sql: str, outputs: tuple[str, ...], source: str, where: str) -> None:
    found = declared(sql).statement

    assert tuple(output.argument for output in found.outputs) == outputs
    assert (found.source, found.where) == (source, where)


@pytest.mark.parametrize(("sql", "message"), REFUSED, ids=[sql for sql, _ in REFUSED])
def test_is_refused_with_the_reason(sql: str, message: str) -> None:
    with pytest.raises(InvalidHandler, match=message) as refused:
        declared(sql)
    assert "read model test_is" not in str(refused.value)
    assert ".model" in str(refused.value)  # which one it is


def test_what_has_an_average_keeps_a_sum_and_a_count() -> None:
    found = declared(
        "SELECT carrier, avg(delay) FILTER (WHERE delay > 0) AS mean FROM landed GROUP BY carrier"
    )

    assert list(found.table.operations) == ["mean_sum", "mean_count"]
    assert found.statement.averages == (("mean", "mean_sum", "mean_count"),)


def test_the_source_in_the_key_makes_rows_of_one_source() -> None:
    assert (
        declared("SELECT source_id AS plane, count(*) AS n FROM landed GROUP BY plane").table.source
        == "plane"
    )
    assert declared("SELECT carrier, count(*) AS n FROM landed GROUP BY carrier").table.source is None
    both = "SELECT s, count(*) AS n FROM (SELECT {} AS s FROM landed UNION ALL SELECT source_id FROM departed) u GROUP BY s"
    assert declared(both.format("source_id")).table.source == "s"
    assert declared(both.format("carrier")).table.source is None


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (str, "text"), (int, "bigint"), (bool, "boolean"), (float, "double precision"), (Decimal, "numeric"),
        (date, "date"), (datetime, "timestamp with time zone"), (UUID, "uuid"), (Colour, "text"),
        (Literal["a", "b"], "text"), (Literal[1, 2], "bigint"), (int | None, "bigint"), (list[int], "jsonb"),
        (int | str, "jsonb"), (Landed, "jsonb"), (dict[str, int], "jsonb"), (Any, "jsonb"),
    ],
)  # fmt: skip
def test_types_of_fields(annotation: Any, expected: str) -> None:
    model = type("Model", (BaseModel,), {"__annotations__": {"x": annotation}})

    assert columns_of(model)["x"].type == expected


class Checked(BaseModel):
    n: int = 0

    @model_validator(mode="before")
    @classmethod
    def whole(cls, value: Any) -> Any:
        return value


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)

    n: int = 0


class Itself(BaseModel):
    n: int = 0
    inner: Itself | None = None


@pytest.mark.parametrize(
    ("model", "sql", "expected"),
    [
        (Departed, "SELECT entity_type, max(delay) AS n FROM e GROUP BY 1", False),
        (Departed, "SELECT entity_type, count(*) AS n FROM e GROUP BY 1", False),
        (Checked, "SELECT entity_type, count(*) AS n FROM e GROUP BY 1", True),
        (Strict, "SELECT entity_type, max(n) AS n FROM e GROUP BY 1", True),
        (Itself, "SELECT entity_type, max(n) AS n FROM e GROUP BY 1", False),
        (Itself, "SELECT entity_type, count(inner) AS n FROM e GROUP BY 1".replace("inner", '"inner"'), True),
    ],
)
def test_models_read_all_events_where_sql_cannot_know_their_rules(
    model: Any, sql: str, *, expected: bool
) -> None:
    @projection("p", entity_type="t")
    class P:
        e = events(model)
        m = read_model(sql)

    (found,) = projection_of(P).read_models
    assert found.by_model is expected
    envelope = EventEnvelope(
        "s", 1, datetime.now(UTC), 0, UUID(int=1), "t", model.__name__, 1, '{"delay": 5, "n": 5}', None, None
    )
    columns = given_columns(found, [envelope], every=True)
    assert columns is not None
    ((*_, text),) = zip(*columns, strict=True)
    assert set(json.loads(text)) == {"delay", "n", "inner"} & found.statement.reads["e"]


@pytest.mark.parametrize(
    ("text", "literal"),
    [("it's", "'it''s'"), ("a\\b", r"E'a\\b'"), (r"\' OR TRUE --", r"E'\\'' OR TRUE --'")],
)
def test_no_text_ends_its_literal(text: str, literal: str) -> None:
    assert quote_literal(text) == literal


class TestWhatGoesWithReadModels:
    def test_handlers_do_not(self) -> None:
        with pytest.raises(
            InvalidHandler, match="has handlers and read models in SQL: make them two projections"
        ):

            @projection("p", entity_type="plane")
            class Both:
                landed = events(Landed)
                model = read_model("SELECT carrier, count(*) AS n FROM landed GROUP BY carrier")

                @handles(Departed)
                async def departed(self, session: Session, event: Departed, envelope: Any) -> None: ...

    def test_reactions_do_not(self) -> None:
        with pytest.raises(InvalidHandler, match="write those into a projection of their own"):

            @projection("p", entity_type="plane")
            class Reacting:
                landed = events(Landed)
                model = read_model("SELECT carrier, count(*) AS n FROM landed GROUP BY carrier")

                @reacts(Departed)
                async def departed(self, session: Session, event: Departed, envelope: Any) -> None: ...

    def test_delivery_at_least_once_does_not(self) -> None:
        with pytest.raises(InvalidHandler, match="read models in SQL write to the database, exactly once"):

            @projection("p", entity_type="plane", delivery=AtLeastOnce())
            class Late:
                landed = events(Landed)
                model = read_model("SELECT carrier, count(*) AS n FROM landed GROUP BY carrier")

    def test_two_of_one_table_do_not(self) -> None:
        with pytest.raises(InvalidHandler, match="two read models fill table t"):

            @projection("p", entity_type="plane")
            class Twice:
                landed = events(Landed)
                one = read_model("SELECT carrier, count(*) AS n FROM landed GROUP BY carrier", table="t")
                two = read_model("SELECT carrier, count(*) AS n FROM landed GROUP BY carrier", table="t")

    def test_events_without_a_read_model_do_not(self) -> None:
        with pytest.raises(InvalidHandler, match="handles no event"):

            @projection("p", entity_type="plane")
            class Nothing:
                landed = events(Landed)


def test_events_of_no_model_are_refused() -> None:
    with pytest.raises(InvalidHandler, match="takes a pydantic model class"):
        events(int)  # type: ignore[type-var]


DOCUMENTED = documented("statement")


@pytest.mark.parametrize(("sql", "message"), DOCUMENTED, ids=[sql for sql, _ in DOCUMENTED])
def test_what_the_guide_says_of_it_is_what_the_error_says(sql: str, message: str) -> None:
    with pytest.raises(InvalidHandler, match=re.escape(message)):
        declared(sql)


def test_the_guide_has_the_table() -> None:
    assert len(DOCUMENTED) == 19


def test_two_models_of_one_event_type_are_refused_in_one_statement() -> None:
    @event_type("moved")
    class One(BaseModel):
        x: int

    @event_type("moved")
    class Other(BaseModel):
        y: int

    with pytest.raises(InvalidHandler, match="reads two models of one event type"):

        @projection("p", entity_type="t")
        class P:
            one = events(One)
            other = events(Other)
            sums = read_model(
                "SELECT source_id, sum(v) AS v FROM (SELECT source_id, x AS v FROM one UNION ALL "
                "SELECT source_id, y AS v FROM other) AS both GROUP BY source_id"
            )


UserId = NewType("UserId", int)


def test_a_field_of_a_new_type_is_of_the_type_beneath() -> None:
    class Named(BaseModel):
        user: UserId

    assert columns_of(Named)["user"].type == "bigint"


def test_a_text_of_a_statement_is_not_replaced() -> None:
    assert "'{written} {writes}'" in _page_sql([FakePlan("SELECT '{written} {writes}'")])  # type: ignore[list-item]


class FakePlan:
    """One whose statement is a text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def upsert(self, _source: str) -> str:
        return self.text
