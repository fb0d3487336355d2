"""Whoever registers a projection names all journals that it reads, whatever was added, begun and removed before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

JOURNALS = [None, "a", "b", "c"]
journals = st.lists(st.sampled_from(JOURNALS), min_size=1, max_size=3, unique=True)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("register"), journals),
        st.tuples(st.sampled_from(["begin", "clear", "remove"]), st.sampled_from(JOURNALS)),
    ),
    max_size=12,
)


class Parts:
    """What a database should know: by journal the number of the part, and whether it has begun."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection
        self._numbers: dict[str | None, int] = {}
        self._begun: set[str | None] = set()

    def register(self, named: Sequence[str | None]) -> None:
        """As a worker does on its start, a part after the other; it names all, or is refused."""
        for journal in named:
            left = [one for one in self._numbers if one not in named]
            if self._begun.intersection(left):
                with pytest.raises(psycopg.Error, match="projection 'p' reads "):
                    self._register(journal, named)
                return
            number = self._register(journal, named)
            if journal not in self._numbers and left:
                assert number == self._numbers[left[0]]  # which had not begun, so it reads this one now
            elif journal in self._numbers:
                assert number == self._numbers[journal]
            for one in left:
                del self._numbers[one]
            self._numbers[journal] = number
            self.check()

    def begin(self, journal: str | None) -> None:
        """Handle something."""
        if journal in self._numbers:
            self._begun.add(journal)
            self._set_horizon(journal, "2026-01-01Z")

    def clear(self, journal: str | None) -> None:
        if journal in self._numbers:
            self._begun.discard(journal)
            self._set_horizon(journal, "1970-01-01Z")

    def remove(self, journal: str | None) -> None:
        if journal in self._numbers:
            self._begun.discard(journal)
            self._connection.execute(
                "SELECT projections._remove_projection_v1(%s)", [self._numbers.pop(journal)]
            )

    def check(self) -> None:
        """Each part has its own slices, and is called by its journal where there are several."""
        rows = self._connection.execute("""
            SELECT p.journal, p.projection_id, projections._part_name_v1(p.name, p.journal), r.slices
            FROM projections.projections AS p CROSS JOIN LATERAL (
                SELECT sum(r.max_slice - r.min_slice + 1) AS slices FROM projections.projection_ranges AS r
                WHERE r.projection_id = p.projection_id
            ) AS r
        """).fetchall()
        assert {journal: number for journal, number, *_ in rows} == self._numbers
        assert {slices for *_, slices in rows} <= {1024}
        several = len(rows) > 1
        assert {name for *_, name, _ in rows} == {
            f"p@{one or 'journal'}" if several else "p" for one in self._numbers
        }

    def _register(self, journal: str | None, named: Sequence[str | None]) -> int:
        row = self._connection.execute(
            "SELECT projections.register_projection_v1('p', '{plane}', '{0,512}', 1, %s, %s::text[])",
            [journal, list(named)],
        ).fetchone()
        assert row is not None
        return int(row[0])

    def _set_horizon(self, journal: str | None, at: str) -> None:
        self._connection.execute(
            "UPDATE projections.projection_ranges SET horizon = %s WHERE projection_id = %s",
            [at, self._numbers[journal]],
        )


@pytest.fixture
def connection(dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(dsn, autocommit=True) as found:
        yield found


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(steps=steps)
def test_no_part_that_has_begun_is_left_behind(
    connection: psycopg.Connection, steps: Sequence[tuple[str, object]]
) -> None:
    connection.execute("DELETE FROM projections.projections")
    parts = Parts(connection)
    for what, given_ in steps:
        getattr(parts, what)(given_)
        parts.check()
