"""Subscriptions of groups of consumers to events: matching, reading, publishing."""

from journal import EventIdConflict, InvalidEvent
from offsets import RangeLost
from projections.errors import InvalidHandler
from projections.subscriptions.consumer import Consumer
from projections.subscriptions.errors import (
    HandlerTimedOut,
    InvalidCondition,
    InvalidSubscription,
    ListenerClosed,
    ListenerTooSlow,
    NotDead,
    PublishFailed,
    SubscriptionLost,
    UnknownGroup,
)
from projections.subscriptions.errors import InvalidCursor as InvalidCursor
from projections.subscriptions.groups import GroupRange as GroupRange
from projections.subscriptions.groups import create_group, give_up_handler, remove_group, rescale_group
from projections.subscriptions.groups import cursors as cursors
from projections.subscriptions.groups import group_names as group_names
from projections.subscriptions.groups import move_cursor as move_cursor
from projections.subscriptions.groups import poll_group as poll_group
from projections.subscriptions.groups import release_range as release_range
from projections.subscriptions.listening import Interest, Listener, Listening
from projections.subscriptions.matched import MatchedEvent
from projections.subscriptions.matching import Matching
from projections.subscriptions.publisher import Accepted as Accepted
from projections.subscriptions.publisher import Publisher
from projections.subscriptions.publishing import (
    Publication,
    publish,
    publish_all,
    publish_all_sync,
    publish_sync,
)
from projections.subscriptions.reading import peek as peek
from projections.subscriptions.reading import read_next as read_next
from projections.subscriptions.reading import settled_matches as settled_matches
from projections.subscriptions.retrying import FailedBatch as FailedBatch
from projections.subscriptions.retrying import drop_dead, list_dead, retry_dead, show_dead
from projections.subscriptions.retrying import list_waiting as list_waiting
from projections.subscriptions.settings import (
    ConsumerSettings,
    ListenerSettings,
    PublisherSettings,
    StreamSettings,
)
from projections.subscriptions.sse.request import StreamRequest
from projections.subscriptions.sse.stream import EventStream
from projections.subscriptions.subscribing import keep_subscriptions as keep_subscriptions
from projections.subscriptions.subscribing import subscribe, subscribe_sync, unsubscribe, unsubscribe_sync

__all__ = [
    "Consumer",
    "ConsumerSettings",
    "EventIdConflict",
    "EventStream",
    "HandlerTimedOut",
    "Interest",
    "InvalidCondition",
    "InvalidEvent",
    "InvalidHandler",
    "InvalidSubscription",
    "Listener",
    "ListenerClosed",
    "ListenerSettings",
    "ListenerTooSlow",
    "Listening",
    "MatchedEvent",
    "Matching",
    "NotDead",
    "Publication",
    "PublishFailed",
    "Publisher",
    "PublisherSettings",
    "RangeLost",
    "StreamRequest",
    "StreamSettings",
    "SubscriptionLost",
    "UnknownGroup",
    "create_group",
    "drop_dead",
    "give_up_handler",
    "list_dead",
    "publish",
    "publish_all",
    "publish_all_sync",
    "publish_sync",
    "remove_group",
    "rescale_group",
    "retry_dead",
    "show_dead",
    "subscribe",
    "subscribe_sync",
    "unsubscribe",
    "unsubscribe_sync",
]
