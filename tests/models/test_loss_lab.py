"""The page shows what the loss lab finds."""

from __future__ import annotations

import pytest

from tests.models import loss_lab
from tests.models.catalogue import FOLDER, Scope
from tests.models.spin import missing

PAGE = (FOLDER.parent.parent / "docs" / "loss-lab.md").read_text(encoding="utf-8")
LAB = loss_lab.lab()


@pytest.mark.slow
@pytest.mark.skipif(missing() is not None, reason=str(missing()))
@pytest.mark.parametrize("reader", LAB.readers, ids=[reader.name for reader in LAB.readers])
def test_the_page_shows_the_shortest_schedule_of_a_reader(reader: Scope) -> None:
    assert loss_lab.schedule(LAB, reader) in PAGE


def test_the_command_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")

    assert loss_lab.main() == 2
    assert "spin is not installed" in capsys.readouterr().err
