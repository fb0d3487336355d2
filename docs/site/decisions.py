"""The list of decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_INTRODUCTION = """# Decisions

Each page states one decision: its context, the choice, what was measured, what was rejected, and what it costs.
"""


def decisions_page(folder: Path) -> str:
    """List the decisions of a folder by their titles."""
    titles = {
        page.name: page.read_text().partition("\n")[0].removeprefix("# ")
        for page in sorted(folder.glob("*.md"))
    }
    return "\n".join([_INTRODUCTION, *(f"- [{title}]({name})" for name, title in titles.items())])
