"""Settings of those who match, listen and stream that cannot be."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pydantic import BaseModel, ValidationError

from projections.subscriptions import ListenerSettings, Matching, StreamSettings

NONE = timedelta(0)


@pytest.mark.parametrize("timeout", [NONE, timedelta(microseconds=999), timedelta(seconds=-1)])
def test_conditions_are_not_asked_without_a_limit(timeout: timedelta) -> None:
    with pytest.raises(ValueError, match="condition_timeout must be 1 ms or longer"):
        Matching(condition_timeout=timeout)


def test_matching_is_not_cut_into_no_ranges() -> None:
    with pytest.raises(ValueError, match="the number of ranges must be 1 to 1024, not 0"):
        Matching(0)


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        (ListenerSettings, "keep_every"),
        (ListenerSettings, "expires_after"),
        (ListenerSettings, "patience"),
        (StreamSettings, "keep_alive"),
        (StreamSettings, "patience"),
    ],
)
def test_a_time_that_has_to_pass_is_longer_than_none(settings: type[BaseModel], field: str) -> None:
    with pytest.raises(ValidationError, match=field):
        settings(**{field: NONE})
