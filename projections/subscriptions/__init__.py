"""Subscriptions of groups of consumers to events: matching, reading, publishing."""

from projections.subscriptions.errors import (
    GroupRangeLost,
    HandlerTimedOut,
    InvalidCondition,
    InvalidCursor,
    InvalidSubscription,
    PublishFailed,
    UnknownGroup,
)
from projections.subscriptions.groups import (
    GroupRange,
    Match,
    create_group,
    cursors,
    group_names,
    leave_group,
    move_cursor,
    peek,
    poll_group,
    read_next,
    release_range,
    rescale_group,
    settled_matches,
)
from projections.subscriptions.subscribing import keep_subscriptions, subscribe, unsubscribe

__all__ = [
    "GroupRange",
    "GroupRangeLost",
    "HandlerTimedOut",
    "InvalidCondition",
    "InvalidCursor",
    "InvalidSubscription",
    "Match",
    "PublishFailed",
    "UnknownGroup",
    "create_group",
    "cursors",
    "group_names",
    "keep_subscriptions",
    "leave_group",
    "move_cursor",
    "peek",
    "poll_group",
    "read_next",
    "release_range",
    "rescale_group",
    "settled_matches",
    "subscribe",
    "unsubscribe",
]
