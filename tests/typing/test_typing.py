"""What mypy in strict mode sees of handlers: the event's class, and a wrong one as an error."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

api = pytest.importorskip("mypy.api")

FILE = Path(__file__).with_name("handlers.py")
ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_mypy_sees_the_event_class_and_refuses_a_wrong_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("MYPY_FORCE_COLOR", "0")
    lines = FILE.read_text().splitlines()
    expected = {
        number: line.split("# error: ", 1)[1] for number, line in enumerate(lines, 1) if "# error: " in line
    }

    said, fault, _ = api.run([str(FILE), "--strict", "--no-pretty"])

    found: dict[int, list[str]] = {}
    for match in re.finditer(r"handlers\.py:(\d+): (?:error: )?(.*)", said):
        found.setdefault(int(match[1]), []).append(match[2])
    assert fault == ""
    assert set(expected) == {n for n, texts in found.items() if any(is_finding(text) for text in texts)}, said
    for number, text in expected.items():
        assert any(text in given for given in found[number]), (number, text, found[number])


def is_finding(text: str) -> bool:
    return not text.startswith("note: ") or "Revealed type" in text
