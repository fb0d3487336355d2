"""Subscriptions from the past and groups that read again, on the command line."""

from __future__ import annotations

import json

import pytest

from tests.fixtures.commands import projections


@pytest.mark.slow
def test_subscribe_from_the_past_and_rewind(dsn: str) -> None:
    subscribed = projections("subscribe", "billing", "--from", "beginning", "--json", "--dsn", dsn)
    assert subscribed.returncode == 0, subscribed.stderr
    number = json.loads(subscribed.stdout)["subscription_id"]
    shown = projections("subscriptions", "--dsn", dsn)
    assert "catching up" in shown.stdout
    assert f"subscription {number} of group 'billing' catches up with the past: 0 events" in shown.stdout
    (one,) = json.loads(projections("groups", "show", "billing", "--json", "--dsn", dsn).stdout)[
        "catching_up"
    ]
    assert (one["subscription_id"], one["events"], one["remaining_seconds"]) == (number, 0, None)

    listed = projections("groups", "--dsn", dsn).stdout
    assert "catching up" in listed
    assert "the beginning" in listed
    assert (
        json.loads(projections("groups", "--json", "--dsn", dsn).stdout)["groups"][0]["state"]
        == "catching up"
    )

    rewound = projections("groups", "rewind", "billing", "--from", "2h", "--yes", "--json", "--dsn", dsn)
    assert json.loads(rewound.stdout)["subscriptions"] == 1, rewound.stderr
    again = projections("groups", "rewind", "nobody", "--from", "beginning", "--yes", "--dsn", dsn)
    assert again.returncode == 1
    assert "no group" in again.stderr
    wrong = projections("subscribe", "billing", "--from", "yesterday", "--dsn", dsn)
    assert wrong.returncode == 2
