"""No test depends on others that run at the time: tests of a run share a server, and its processors."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHARED = re.compile(r"\bpg_(?:locks|stat_activity)\b", re.IGNORECASE)
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


def looks_at_others(source: str) -> list[int]:
    if not SHARED.search(source):
        return []
    return [line for line, text in texts(source) if SHARED.search(text) and not OWN.search(text)]


MODULES = sorted(
    name
    for path in (ROOT / "tests").rglob("*.py")
    if not (name := str(path.relative_to(ROOT))).startswith(_APART)
)


def test_no_test_looks_at_sessions_and_locks_of_others() -> None:
    """Of the server ``pg_locks`` has all; and the databases of a run are copies, with the same numbers of tables."""
    found = {f"{name}:{line}" for name in MODULES for line in looks_at_others((ROOT / name).read_text())}

    assert found == set()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = 'SELECT count(*) FROM pg_locks WHERE NOT granted'", [1]),
        ("\nx = f'SELECT {a} FROM pg_stat_activity'", [2]),
        ("x = 'SELECT FROM pg_stat_activity WHERE datname = current_database()'", []),
        ("x = 'SELECT FROM pg_stat_activity WHERE pid = $1'", []),
        ("'''Of pg_locks.'''", []),
    ],
)
def test_such_a_look_is_found(source: str, expected: list[int]) -> None:
    assert looks_at_others(source) == expected
