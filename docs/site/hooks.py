"""What the site adds to the pages below docs/: a generated reference, and pages of files that lie elsewhere."""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from posixpath import relpath
from typing import TYPE_CHECKING

from commands import commands_page
from decisions import decisions_page
from mkdocs.structure.files import File
from python_api import PACKAGES, package_page, undocumented_names
from settings import settings_page

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
INCLUDED = {
    "changelog.md": ROOT / "CHANGELOG.md",
    "development-sql.md": ROOT / "sql/README.md",
    "development-sql-foreign.md": ROOT / "sql/foreign/README.md",
    "development-tests.md": ROOT / "tests/README.md",
}
"""Pages of the site, by their address, and the files outside of docs/ that they are made of."""

_LINK = re.compile(r"(\]\()(?!\w+:|#)([^)#\s]+)")
_log = logging.getLogger("mkdocs.hooks.site")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put every decision into the navigation."""
    [section] = [entry["Decisions"] for entry in config.nav or () if "Decisions" in entry]
    section += [f"decisions/{page.name}" for page in sorted((DOCS / "decisions").glob("*.md"))]
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that are generated or included."""
    pages = {address: file.read_text() for address, file in INCLUDED.items()}
    pages |= {f"reference/python/{package}.md": package_page(package) for package in PACKAGES}
    pages["reference/settings.md"] = settings_page()
    pages["reference/commands.md"] = commands_page()
    pages["decisions/index.md"] = decisions_page(DOCS / "decisions")
    for address, content in pages.items():
        files.append(File.generated(config, address, content=content))
    for name in undocumented_names():
        _log.warning("%s is public and has no docstring: write one that says what it is for", name)
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links as they hold in the repository into links that hold on the site."""
    here = page.file.src_uri
    source = INCLUDED.get(here, DOCS / here)
    pages = {file: address for address, file in INCLUDED.items()}

    def resolved(match: re.Match[str]) -> str:
        target = Path(os.path.normpath(source.parent / match[2]))
        if target in pages:
            address = pages[target]
        elif target.is_relative_to(DOCS):
            address = target.relative_to(DOCS).as_posix()
        else:
            _log.warning("%s links to %s, which is not on the site: add it to INCLUDED", here, match[2])
            return match[0]
        if (DOCS / address).is_dir():
            address += "/index.md"
        return match[1] + relpath(address, str(Path(here).parent))

    return _LINK.sub(resolved, markdown)
