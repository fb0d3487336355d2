"""Names that would move a terminal's cursor, colour it or turn its text round, as commands show them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from journal.database.sync import connect_sync
from tests.fixtures.commands import called
from tests.fixtures.postgres import Databases

NAME = "a\x1b[2J\u202eb\u2028[red]\\[c"
WRITTEN = r"a\x1b[2J\u202eb\u2028[red]\[c"


@pytest.fixture(scope="module")
def named(databases: Databases, template: str) -> Iterator[str]:
    """A projection, its worker and its error that have such names."""
    with databases.fresh(template) as dsn, connect_sync(dsn) as connection:
        connection.execute("SELECT projections.register_projection_v1(%s, ARRAY[%s])", [NAME, NAME])
        connection.execute(
            "UPDATE projections.projection_ranges SET owner = %s, failures = 1, error = %s", [NAME, NAME]
        )
        connection.execute(
            "INSERT INTO projections.workers (owner, host, pid, projection_ids, lease_until) "
            "SELECT %s, %s, 1, array_agg(projection_id), now() + interval '1 day' FROM projections.projections",
            [NAME, NAME],
        )
        connection.commit()
        yield dsn


@pytest.mark.parametrize(
    "command",
    [
        ("lag",), ("lag", "--workers"), ("status",),
        ("offsets", "list"), ("workers",),
    ],
)  # fmt: skip
def test_names_are_written_out(named: str, command: tuple[str, ...]) -> None:
    result = called(*command, "--dsn", named)

    said = result.stdout + result.stderr
    assert not {"\x1b", "\u202e", "\u2028"} & set(said)
    assert WRITTEN in said
