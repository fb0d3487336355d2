"""What users import: how much it is, where it is, and that it says what it does."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.golden.python_names import PACKAGES, names_of

ROOT = Path(__file__).parent.parent.parent
QUESTION = re.compile(
    r"(?:(?:Of|For|From|In|On|To) )?(?:wh\w+|how|likewise|see there)\b(?:\W+\w+){0,3}\.", re.IGNORECASE
)
"""A description that is a question of at most four words, such as "Of which slices." or "What to run."."""
EMPTY_WORDS = """
a all an and are as at by each every for from given has have in is it its of on one only or that the their them these
they this to use used with
"""
REFERENCE = re.compile(r":(?:func|class|meth|mod|attr|data|exc):`~?\.?([\w.]+)`")
OF_ANOTHER = re.compile(r"(?:Args|Arguments)\b[^.]*\b(?:are|as) those of :\w+:`")
"""What the docstring of a synchronous twin may say instead of listing the arguments."""
OF_A_PROTOCOL = {"FanOut", "Session", "StatusObserver", "Tracing", "WebhookMetrics", "WorkerMetrics"}
"""Their methods are those of a protocol, which the library calls."""


def test_the_page_on_versions_names_every_package_of_which_names_are_promised() -> None:
    page = (ROOT / "docs" / "versioning.md").read_text()
    (row,) = (line for line in page.splitlines() if line.startswith("| Python |"))

    assert set(re.findall(r"`([a-z_.]+)`", row)) - {"__all__"} == set(PACKAGES)


def test_there_is_not_more_to_know_than_there_was() -> None:
    assert len({name for package in PACKAGES for name in names_of(package)}) <= 149


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_says_what_it_is(package: str) -> None:
    silent = [
        name
        for name, value in names_of(package).items()
        if (inspect.isclass(value) or inspect.isfunction(value)) and not inspect.getdoc(value)
    ]

    assert silent == []


@pytest.mark.parametrize("package", PACKAGES)
def test_what_a_call_raises_is_imported_from_where_the_call_is(package: str) -> None:
    names = names_of(package)
    shared = names_of("projections") if package == "projections.testing" else {}
    elsewhere = {
        f"{call.__qualname__} raises {error}"
        for value in names.values()
        for call in calls_of(value)
        for error in raised_by(call)
        if error not in names and error not in shared and not of_python(error)
    }

    assert elsewhere == set()


@pytest.mark.slow
@pytest.mark.parametrize("package", ["journal", "offsets", "projections", "spark_projections"])
def test_no_argument_is_described_by_a_question(package: str) -> None:
    found = [
        f"{file.relative_to(ROOT)}: {name}: {text}"
        for file in sorted((ROOT / package).rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for name, text in arguments_in(ast.get_docstring(node) or "")
        if QUESTION.fullmatch(text)
    ]

    assert found == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_argument_is_described_by_more_than_its_name(package: str) -> None:
    found = [
        f"{where}: {name}: {text}"
        for where, documented in documented_in(package)
        for name, text in arguments_in(inspect.getdoc(documented) or "")
        if QUESTION.fullmatch(text)
        or not words_of(text) - words_of(name.replace("_", " ")) - words_of(EMPTY_WORDS)
    ]

    assert found == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_call_describes_its_arguments(package: str) -> None:
    found = [
        f"{where}: {', '.join(missing)}"
        for where, call in documented_in(package)
        if inspect.isfunction(call) and where.partition(".")[0] not in OF_A_PROTOCOL
        if not (OF_ANOTHER.search(doc := inspect.getdoc(call) or "") and call.__name__.endswith("_sync"))
        if "Args:" in doc or call.__name__.endswith("_sync") or len(parameters_of(call)) > 1
        if (missing := parameters_of(call) - {name for name, _ in arguments_in(doc)})
    ]

    assert found == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_synchronous_twin_says_what_it_raises(package: str) -> None:
    found = [
        where
        for where, call in documented_in(package)
        if inspect.isfunction(call) and call.__name__.endswith("_sync")
        if "Raises:" not in (doc := inspect.getdoc(call) or "") and "errors" not in doc
    ]

    assert found == []


@pytest.mark.parametrize("package", PACKAGES)
def test_docs_refer_only_to_what_is_public(package: str) -> None:
    public = {name for home in PACKAGES for name in names_of(home)} | set(PACKAGES)
    own = {name for value in names_of(package).values() if inspect.isclass(value) for name in dir(value)}
    found = {
        f"{where} refers to {name}"
        for where, documented in documented_in(package)
        for name in REFERENCE.findall(inspect.getdoc(documented) or "")
        if not of_python(name)
        and not {name, name.rpartition(".")[2], name.rpartition(".")[0]} & (public | own)
    } | {
        f"{where} refers to {name}"
        for where, documented in documented_in(package)
        for name in re.findall(r"\boffsets\.\w+", inspect.getdoc(documented) or "")
    }

    assert found == set()


def documented_in(package: str) -> Iterator[tuple[str, Any]]:
    """The public functions, classes and methods of a package."""
    for name, value in names_of(package).items():
        if inspect.isclass(value):
            yield name, value
        yield from ((call.__qualname__, call) for call in calls_of(value))


def parameters_of(call: Any) -> set[str]:
    return {*inspect.signature(call).parameters} - {"self", "cls"}


def arguments_in(doc: str) -> list[tuple[str, str]]:
    """The arguments that a docstring lists, and how it describes each."""
    listed = re.search(r"^Args:\n((?: {4}.*\n?|\n)+)", doc, re.MULTILINE)
    found = re.findall(r"^ {4}\**(\w+): (.*(?:\n {8}.*)*)", listed[1], re.MULTILINE) if listed else []
    return [(name, " ".join(text.split())) for name, text in found]


def words_of(text: str) -> set[str]:
    return {word.removesuffix("s") for word in re.findall(r"\w+", text.lower())}


def calls_of(value: Any) -> Iterator[Any]:
    if inspect.isfunction(value):
        yield value
    elif inspect.isclass(value):
        yield from (one for name, one in vars(value).items() if inspect.isfunction(one) and name[0] != "_")


def of_python(name: str) -> bool:
    return hasattr(builtins, name) or name.partition(".")[0] in sys.stdlib_module_names


def raised_by(call: Any) -> list[str]:
    _, _, raised = (inspect.getdoc(call) or "").partition("Raises:\n")
    lines = re.findall(r"^ {4}(\w[\w., ]*):", raised, re.MULTILINE)
    return [name.strip() for line in lines for name in line.split(",")]
