"""The table of error codes is what the functions raise, and each code means one thing."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

SQL = Path(__file__).parents[2] / "sql"


def test_each_code_is_listed_once_and_raised() -> None:
    listed = Counter(re.findall(r"^\| `(PJ\d{3})` ", (SQL / "README.md").read_text(), re.MULTILINE))
    raised = {
        code for file in SQL.rglob("*.sql") for code in re.findall(r"ERRCODE = '(PJ\d{3})'", file.read_text())
    }

    assert {code for code, times in listed.items() if times > 1} == set()
    assert set(listed) == raised
