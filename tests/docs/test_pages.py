"""Documentation runs: the Python of a page is one program; its commands and its SQL run in their order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_LIMIT = 300
"""Seconds for a program, and for each command."""

_SLOW = {
    "docs/guides/archive.md", "docs/guides/dataframe.md", "docs/guides/lag.md", "docs/guides/metrics.md",
    "docs/guides/reading-your-writes.md", "docs/guides/rebuild.md", "docs/guides/retention.md",
    "docs/guides/retries.md", "docs/guides/spark-setup.md", "docs/guides/sse.md", "docs/guides/table-events.md",
    "docs/guides/webhooks.md",
    "docs/operations/production.md", "docs/operations/running.md", "docs/operations/webhooks.md",
}  # fmt: skip
"""Pages whose programs take long, as they start a Spark of their own, or many processes: tests show the same."""

_BLOCK = re.compile(r"^```(python|console|sql)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!\w+://|#)([^)#\s]+)")


def _blocks(page: Path, language: str) -> list[str]:
    return [text for found, text in _BLOCK.findall(page.read_text()) if found == language]


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _having(language: str) -> list[Any]:
    return [
        pytest.param(page, id=_name(page), marks=[pytest.mark.slow] if _name(page) in _SLOW else [])
        for page in PAGES
        if _blocks(page, language)
    ]


def _environment(dsn: str) -> dict[str, str]:
    scripts = str(Path(sys.executable).parent)
    return {
        **os.environ,
        "PROJECTIONS_DSN": dsn,
        "PATH": f"{scripts}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }


@pytest.mark.slow
@pytest.mark.timeout(2 * _LIMIT)
@pytest.mark.parametrize("page", _having("python"))
def test_python_of_a_page_runs_as_one_program(page: Path, dsn: str, tmp_path: Path) -> None:
    program = tmp_path / "page.py"
    program.write_text("\n".join(_blocks(page, "python")))

    done = subprocess.run(
        [sys.executable, "-W", "error", program],
        env=_environment(dsn),
        capture_output=True,
        text=True,
        timeout=_LIMIT,
        check=False,
    )

    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.timeout(2 * _LIMIT)
@pytest.mark.parametrize("page", _having("console"))
def test_commands_of_a_page_succeed(page: Path, dsn: str, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("\n".join(_blocks(ROOT / "docs/quickstart.md", "python")))
    lines = [
        line[2:] for text in _blocks(page, "console") for line in text.splitlines() if line.startswith("$ ")
    ]

    for line in lines:
        done = subprocess.run(
            line,
            shell=True,
            cwd=tmp_path,
            env=_environment(dsn),
            capture_output=True,
            text=True,
            timeout=_LIMIT,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stderr}"


@pytest.mark.parametrize("page", _having("sql"))
def test_sql_of_a_page_runs(page: Path, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for text in _blocks(page, "sql"):
            connection.execute(text)


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    broken = [link for link in _LINK.findall(page.read_text()) if not (page.parent / link).exists()]

    assert broken == []


def test_ci_runs_the_test_command_of_the_readme() -> None:
    commands = re.findall(r"^python3 -m venv .*pytest.*$", (ROOT / "README.md").read_text(), re.MULTILINE)

    assert len(commands) == 1
    assert commands[0] in (ROOT / ".ci/run").read_text()
