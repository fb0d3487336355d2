"""Which of the transactions that were waited for may still be open."""

from __future__ import annotations

import pytest

from journal.writers import still_open


@pytest.mark.parametrize(
    ("waited_for", "holders", "open_"),
    [
        (["3/1", "4/7"], ["4/7"], {"4/7"}),
        (["3/1"], ["5/2"], set()),
        # Who prepares changes its name, and holds its lock until it is committed by somebody.
        (["3/1"], ["p3/1"], {"p3/1"}),
        (["3/1"], ["p-1/99", "6/1"], {"p-1/99"}),
        ([], ["p3/1"], set()),
    ],
)
def test_whoever_held_the_lock_is_waited_for_under_any_name(
    waited_for: list[str], holders: list[str], open_: set[str]
) -> None:
    assert still_open(waited_for, holders) == open_
