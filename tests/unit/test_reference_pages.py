"""Pages of the reference that are written by hand, against the code: actions of the log, environment variables."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PACKAGES = ("journal", "offsets", "projections", "spark_projections")
MAKERS = {"_extra", "_given_up"}
"""Methods whose first argument is an action."""


def trees() -> Iterator[ast.Module]:
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            yield ast.parse(file.read_text())


def actions_of(node: ast.AST) -> Iterator[ast.expr]:
    """The expressions that are actions."""
    if isinstance(node, ast.Dict):
        yield from (
            value
            for key, value in zip(node.keys, node.values, strict=True)
            if isinstance(key, ast.Constant) and key.value == "action"
        )
    elif isinstance(node, ast.Call):
        yield from (keyword.value for keyword in node.keywords if keyword.arg == "action")
        if isinstance(node.func, ast.Attribute) and node.func.attr in MAKERS:
            yield from node.args[:1]
    elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).strip("()").startswith("action,"):
        assert isinstance(node.value, ast.Tuple)
        yield node.value.elts[0]


def logged_actions() -> set[str]:
    """Actions as the code writes them; those of variables are where the variable is assigned."""
    found = {
        one
        for tree in trees()
        for node in ast.walk(tree)
        for action in actions_of(node)
        for one in literals(action)
    }
    return found - {"_failed"}  # the end of a name that is put together


def literals(action: ast.expr) -> Iterator[str]:
    if isinstance(action, ast.IfExp):
        yield from literals(action.body)
        yield from literals(action.orelse)
    elif isinstance(action, ast.Constant) and isinstance(action.value, str):
        yield action.value


def first_cells(page: str) -> set[str]:
    """What is in backquotes in the first column of the tables of a page."""
    rows = re.findall(r"^\| (`[^|]*`) \|", (ROOT / "docs/reference" / page).read_text(), re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


@pytest.mark.slow
def test_every_action_of_the_log_is_described() -> None:
    assert first_cells("log-actions.md") - {"NAME_failed"} == logged_actions()


@pytest.mark.slow
def test_every_environment_variable_is_described() -> None:
    read = {
        name
        for tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for name in re.findall(r"\b_?PROJECTIONS_[A-Z_]+\b", node.value)
    }

    assert first_cells("environment.md") == read
