"""Which DSN is used, and what a wrong one is told."""

from __future__ import annotations

import click
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from journal import InvalidValue
from journal.embedded import check_dsn, database_dsn
from projections.terminal.connection import (
    JOURNAL_VARIABLE,
    READ_SIDE_VARIABLE,
    Sides,
    read_side_alone,
    sides,
)

SECRET = "hunter2secret"


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://localhost/db",
        "postgres://user:p%40ss@localhost:5433/db?sslmode=require",
        "postgresql://user@/postgres?host=/run/postgresql&port=5432",
        "postgresql://[::1]:5432/db",
        "postgresql://[::1]/db",
        "postgresql://one:5432,two:5433/db",
        "postgresql:///db",
        "host=/run/postgresql dbname=db user='a b' password='it\\'s'",
    ],
)
def test_forms_of_postgresql_are_taken(dsn: str) -> None:
    assert check_dsn(dsn) == dsn


@pytest.mark.parametrize(
    ("dsn", "reason"),
    [
        ("", "is empty"),
        ("  ", "is empty"),
        ("localhost", "does not begin with postgresql://"),
        (f"mysql://root:{SECRET}@localhost/db", "does not begin with postgresql://"),
        (f"postgresql:/user:{SECRET}@localhost/db", "does not begin with postgresql://"),
        (f"postgresql://user:{SECRET}", "port that is not a number"),
        (f"postgresql://user:{SECRET}@localhost:http/db", "port that is not a number"),
        (f"postgresql://user:{SECRET}@localhost:70000/db", "port that is not a number"),
        (f"postgresql://user:{SECRET}/x@localhost/db", "port that is not a number"),
        (f"postgresql://user:{SECRET}@x@localhost/db", "more than one @"),
        (f"postgresql://user:{SECRET} x@localhost/db", "white space"),
        (f"postgresql://user:{SECRET}\0@localhost/db", "NUL"),
        (f"postgresql://user:{SECRET}@[::1/db", "cannot be read as a URL"),
        (f"password={SECRET} host", "does not begin with postgresql://"),
    ],
)
def test_wrong_dsn_is_told_why_and_never_quoted(dsn: str, reason: str) -> None:
    with pytest.raises(InvalidValue, match=reason) as caught:
        check_dsn(dsn, "PROJECTIONS_DSN")

    assert str(caught.value).startswith("PROJECTIONS_DSN ")
    assert SECRET not in str(caught.value)


@given(before=st.text(max_size=20), after=st.text(max_size=20))
@example(before="postgresql://u:", after="@[")
def test_no_text_makes_the_message_show_the_password(before: str, after: str) -> None:
    message = ""
    try:
        check_dsn(before + SECRET + after)
    except InvalidValue as error:
        message = f"{error} {error.__cause__}"

    assert SECRET not in message


def test_dsn_that_is_named_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROJECTIONS_DSN", "postgresql://other/db")

    with database_dsn("postgresql://named/db") as dsn:
        assert dsn == "postgresql://named/db"


def test_no_side_is_that_of_the_environment_where_a_dsn_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (JOURNAL_VARIABLE, READ_SIDE_VARIABLE):
        monkeypatch.setenv(variable, "postgresql://other/db")

    with sides("postgresql://named/db") as both, read_side_alone("postgresql://named/db") as read_side:
        assert both == Sides("postgresql://named/db")
        assert read_side == "postgresql://named/db"


def test_a_journal_is_read_once() -> None:
    twice = sides(None, ["one=postgresql:///x", "two=postgresql:///x"], "postgresql:///y")
    with pytest.raises(click.UsageError, match="a journal is named twice"), twice:
        pass


def test_environment_comes_before_the_embedded_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROJECTIONS_DSN", "postgresql://other/db")

    with database_dsn() as dsn:
        assert dsn == "postgresql://other/db"


def test_wrong_dsn_in_the_environment_is_told_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROJECTIONS_DSN", "nonsense")

    with pytest.raises(InvalidValue, match=r"^PROJECTIONS_DSN "), database_dsn():
        pass
