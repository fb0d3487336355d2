"""The site: every page can be found on it, every public package has a page, and mistakes stop its build."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from tests.golden.python_names import PACKAGES, names_of

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
CONFIG = yaml.safe_load((ROOT / ".mkdocs.yml").read_text())


@pytest.fixture
def python_api(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The generator of the reference, as the build imports it."""
    monkeypatch.syspath_prepend(DOCS / "site")
    yield import_module("python_api")
    del sys.modules["python_api"]


def pages_in(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    else:
        for entry in nav.values() if isinstance(nav, dict) else nav:
            yield from pages_in(entry)


def test_every_page_is_in_the_navigation() -> None:
    written = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}

    assert {page for page in written if not page.startswith("decisions/")} - {
        *pages_in(CONFIG["nav"])
    } == set(), "add the page to nav in .mkdocs.yml"


def test_every_decision_begins_with_its_title() -> None:
    untitled = [
        page.name for page in (DOCS / "decisions").glob("*.md") if not re.match(r"# \S", page.read_text())
    ]

    assert untitled == []


def test_the_reference_has_a_page_for_every_public_package(python_api: ModuleType) -> None:
    pages = {page for page in pages_in(CONFIG["nav"]) if page.startswith("reference/python/")}

    assert set(python_api.PACKAGES) == set(PACKAGES)
    assert pages == {f"reference/python/{package}.md" for package in PACKAGES}


def test_every_public_name_is_described_once_and_linked_from_other_packages(python_api: ModuleType) -> None:
    pages = {package: python_api.package_page(package) for package in PACKAGES}
    described = [
        name for page in pages.values() for name in re.findall(r"^::: .*\.(\w+)$", page, re.MULTILINE)
    ]

    assert sorted(described) == sorted({name for package in PACKAGES for name in names_of(package)})
    for package in PACKAGES:
        assert [name for name in names_of(package) if name not in pages[package]] == []


def test_a_public_name_without_a_docstring_is_found(python_api: ModuleType) -> None:
    class Silent:
        def says(self) -> None:
            """Say something."""

        def says_nothing(self) -> None: ...

    assert list(python_api.undocumented_in("package.Silent", Silent)) == [
        "package.Silent",
        "package.Silent.says_nothing",
    ]
    assert list(python_api.undocumented_names()) == []
