"""How long a list can be."""

from __future__ import annotations

import pytest

from journal import InvalidValue
from journal.limits import check_limit


@pytest.mark.parametrize("limit", [1, 1000])
def test_a_list_has_1_to_1000_rows(limit: int) -> None:
    check_limit(limit)


@pytest.mark.parametrize("limit", [-1, 0, 1001])
def test_no_other_list_is_asked_for(limit: int) -> None:
    with pytest.raises(InvalidValue, match=f"limit must be 1 to 1000, not {limit}"):
        check_limit(limit)
