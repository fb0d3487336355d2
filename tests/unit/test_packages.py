"""What the import contracts and the linter cannot see: names in strings, classes that stand twice, and sizes."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from projections.extras import NotRegistered, registered

ROOT = Path(__file__).parent.parent.parent
IMPORT_NAMES = "journal/import_names.py"
"""Compares names with those of an application: imports none of them."""
PUBLIC_MODULE = "projections/testing.py"
"""A module that users import by its own name."""


def test_no_package_below_names_spark_projections_in_a_string() -> None:
    found = {
        f"{module}: {text}"
        for module, tree in modules("journal", "offsets", "projections")
        if module != IMPORT_NAMES
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and "spark_projections" in str(text := node.value)
    }

    assert found == set()


def test_an_entry_point_that_the_installation_lacks_is_told_with_what_to_do() -> None:
    with pytest.raises(
        NotRegistered, match=r"'others' of 'projections\.discoveries'.*Install slice-projections again"
    ):
        registered("projections.discoveries", "others")


@pytest.mark.slow
def test_no_two_classes_have_the_same_name() -> None:
    names = Counter(
        node.name
        for _, tree in modules("journal", "offsets", "projections", "spark_projections")
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )

    assert [name for name, number in names.items() if number > 1] == []


def test_a_process_that_is_frozen_in_a_transaction_of_the_library_does_not_keep_its_locks() -> None:
    """``Database.transaction()`` is for applications and has no time limit; ``session.transaction()`` has one."""
    found = [
        f"{module}, line {node.lineno}"
        for module, tree in modules("journal", "offsets", "projections", "spark_projections")
        if not module.startswith("projections/demo/")  # it is an application
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr == "transaction"
        and "database" in ast.unparse(node.value)
    ]

    assert found == []


def test_a_transaction_without_a_limit_of_silence_is_one_that_may_wait_for_something_else() -> None:
    found = {
        module
        for module, tree in modules("journal", "offsets", "projections", "spark_projections")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "begin"
        and "session" in ast.unparse(node.func.value)
        and not any(each.arg == "idle" for each in node.keywords)
    }

    assert found == {
        "offsets/moving.py",  # the journal is read meanwhile
        "offsets/standings.py",  # what it reads is stored elsewhere meanwhile
        "spark_projections/rebuilds/bookkeeping.py",  # Spark works meanwhile
    }


@pytest.mark.slow
def test_only_what_may_be_imported_from_outside_is_listed() -> None:
    listed = {
        module
        for module, tree in modules("journal", "offsets", "projections", "spark_projections")
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    }

    assert {module for module in listed if not module.endswith("/__init__.py")} == {PUBLIC_MODULE}, (
        "remove __all__ from other modules: an underscore says what is a module's own (docs/decisions/names.md)"
    )


def test_files_are_short() -> None:
    lengths = {
        file: len(file.read_text().splitlines())
        for folder in ("journal", "offsets", "projections", "spark_projections", "sql")
        for file in (ROOT / folder).rglob("*")
        if file.suffix in {".py", ".sql"}
    }

    assert {file: length for file, length in lengths.items() if length >= 400} == {}


@pytest.mark.slow
def test_functions_are_short_without_their_docstrings() -> None:
    lengths = {
        f"{module}:{node.lineno}": length_without_docstring(node)
        for module, tree in modules("journal", "offsets", "projections", "spark_projections")
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }

    assert {place: length for place, length in lengths.items() if length >= 60} == {}


def length_without_docstring(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    first = node.body[0]
    docstring = 0 if ast.get_docstring(node) is None else lines(first)
    return lines(node) - docstring


def lines(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def modules(*packages: str) -> Iterator[tuple[str, ast.Module]]:
    """The modules of packages, by their paths."""
    for package in packages:
        for file in (ROOT / package).rglob("*.py"):
            yield file.relative_to(ROOT).as_posix(), ast.parse(file.read_text())
