"""No test depends on others that run at the time: tests of a run share a server, and its processors."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHARED = re.compile(r"\bpg_(?:locks|stat_activity)\b", re.IGNORECASE)
ORDERED = re.compile(r"_agg\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\bORDER BY \d", re.IGNORECASE)
OWN = re.compile(
    r"datname|current_database\(\)|pg_blocking_pids|pg_backend_pid|\bpid = (?:ANY ?\()?(?:\$|%|\{)",
    re.IGNORECASE,
)
"""What leaves only sessions of the test's own database, or certain ones."""
_APART = ("tests/simulation/", "tests/benchmarks/", "tests/models/", "tests/unit/test_tests.py")
"""With a server of their own, or none."""


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Each string of a module with its line, an f-string as a whole; no docstrings."""
    nodes = list(ast.walk(ast.parse(source)))
    parts = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    parts |= {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.lineno, node.value


def looks_at_others(text: str) -> bool:
    """Of the server ``pg_locks`` has all; and the databases of a run are copies, with the same numbers of tables."""
    return bool(SHARED.search(text) and not OWN.search(text))


def orders_by_a_constant(text: str) -> bool:
    """In an aggregate ``ORDER BY 1`` is no column: what comes is in any order."""
    return bool(ORDERED.search(text))


KINDS: dict[Callable[[str], bool], re.Pattern[str]] = {looks_at_others: SHARED, orders_by_a_constant: ORDERED}


def found_by(kind: Callable[[str], bool], source: str) -> list[int]:
    """The lines of strings that are of a kind."""
    if not KINDS[kind].search(source):
        return []
    return [line for line, text in texts(source) if kind(text)]


MODULES = sorted(
    name
    for path in (ROOT / "tests").rglob("*.py")
    if not (name := str(path.relative_to(ROOT))).startswith(_APART)
)


@pytest.mark.parametrize("kind", KINDS)
def test_no_test_depends_on_chance(kind: Callable[[str], bool]) -> None:
    found = {f"{name}:{line}" for name in MODULES for line in found_by(kind, (ROOT / name).read_text())}

    assert found == set(), kind.__doc__


@pytest.mark.parametrize(
    ("kind", "source", "expected"),
    [
        (looks_at_others, "x = 'SELECT count(*) FROM pg_locks WHERE NOT granted'", [1]),
        (looks_at_others, "\nx = f'SELECT {a} FROM pg_stat_activity'", [2]),
        (looks_at_others, "x = 'SELECT FROM pg_stat_activity WHERE datname = current_database()'", []),
        (looks_at_others, "x = 'SELECT FROM pg_stat_activity WHERE pid = $1'", []),
        (looks_at_others, "'''Of pg_locks.'''", []),
        (orders_by_a_constant, "x = 'SELECT array_agg(concat(a, b) ORDER BY 1) FROM t'", [1]),
        (orders_by_a_constant, "x = 'SELECT array_agg(a ORDER BY a) FROM t ORDER BY 1'", []),
    ],
)
def test_such_a_string_is_found(kind: Callable[[str], bool], source: str, expected: list[int]) -> None:
    assert found_by(kind, source) == expected
