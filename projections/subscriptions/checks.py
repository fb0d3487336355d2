"""What is checked of arguments before the database sees them."""

from __future__ import annotations

from journal import InvalidEvent, check_text
from projections.subscriptions.errors import InvalidSubscription


def check_storable(text: object, what: str) -> None:
    """Check that a value is a text that PostgreSQL can store; else InvalidSubscription."""
    if not isinstance(text, str):
        raise InvalidSubscription(f"{what} must be a string, not {text!r:.80}")
    try:
        check_text(text, what)
    except InvalidEvent as error:
        raise InvalidSubscription(str(error)) from error


def check_number(subscription_id: object) -> int:
    """Return the number of a subscription; InvalidSubscription: it is something else."""
    if not isinstance(subscription_id, int) or not -(2**63) <= subscription_id < 2**63:
        raise InvalidSubscription(f"subscription_id must be a number of 64 bits, not {subscription_id!r:.80}")
    return subscription_id
