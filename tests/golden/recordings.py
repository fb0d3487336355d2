"""Recordings: their files, comparing them with what is generated now, and renewing them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from difflib import unified_diff
from pathlib import Path
from typing import TypeAlias

FOLDER = Path(__file__).parent / "recorded"

Files: TypeAlias = Mapping[str, str]
"""The texts of a kind of recordings, by the path below the folder: ``metrics.txt``, or ``help/worker.txt``."""
Fresh: TypeAlias = Callable[[], AbstractContextManager[str]]
"""Gives a database with the schema for the length of a block, by its DSN."""
Generator: TypeAlias = Callable[[Fresh], Files]


def recorded(kind: str, folder: Path = FOLDER) -> dict[str, str]:
    """The recorded files of a kind: ``KIND.*``, or what is in the folder ``KIND``."""
    found = [*folder.glob(f"{kind}.*"), *folder.glob(f"{kind}/*")]
    return {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in sorted(found)}


def difference(before: Files, after: Files) -> str:
    """What has changed from one set of files to another, as a unified diff; nothing where they are the same."""
    return "".join(line for name in sorted({*before, *after}) for line in _changes(before, after, name))


def record(kind: str, files: Files, folder: Path = FOLDER) -> str:
    """Write the files of a kind in place of those that are there; returns what has changed."""
    before = recorded(kind, folder)
    for name in before.keys() - files:
        (folder / name).unlink()
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return difference(before, files)


def lines(found: Iterator[str] | list[str]) -> str:
    """A text of these lines."""
    return "".join(f"{line}\n" for line in found)


def _changes(before: Files, after: Files, name: str) -> Iterator[str]:
    old, new = before.get(name, ""), after.get(name, "")
    return unified_diff(old.splitlines(True), new.splitlines(True), f"recorded/{name}", f"now/{name}", n=2)
