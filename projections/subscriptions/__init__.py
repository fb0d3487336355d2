"""Subscriptions of groups of consumers to events: matching, reading, publishing."""

from offsets import RangeLost
from projections.subscriptions.consumer import Consumer
from projections.subscriptions.errors import (
    HandlerTimedOut,
    InvalidCondition,
    InvalidCursor,
    InvalidSubscription,
    ListenerClosed,
    ListenerTooSlow,
    NotDead,
    PublishFailed,
    SubscriptionLost,
    UnknownGroup,
)
from projections.subscriptions.groups import (
    GroupRange,
    create_group,
    cursors,
    give_up_handler,
    group_names,
    move_cursor,
    poll_group,
    release_range,
    remove_group,
    rescale_group,
)
from projections.subscriptions.listening import Interest, Listener, Listening
from projections.subscriptions.matched import MatchedEvent
from projections.subscriptions.matching import Matching
from projections.subscriptions.publisher import Accepted, Publisher
from projections.subscriptions.publishing import (
    Publication,
    publish,
    publish_all,
    publish_all_sync,
    publish_sync,
)
from projections.subscriptions.reading import Match, peek, read_next, settled_matches
from projections.subscriptions.retrying import (
    FailedBatch,
    drop_dead,
    list_dead,
    list_waiting,
    retry_dead,
    show_dead,
)
from projections.subscriptions.settings import (
    ConsumerSettings,
    ListenerSettings,
    PublisherSettings,
    StreamSettings,
)
from projections.subscriptions.sse.rendering import ServerSentEvent, as_json, by_topic
from projections.subscriptions.sse.request import Refused, StreamRequest
from projections.subscriptions.sse.stream import EventStream
from projections.subscriptions.subscribing import (
    keep_subscriptions,
    subscribe,
    subscribe_sync,
    unsubscribe,
    unsubscribe_sync,
)

__all__ = [
    "Accepted",
    "Consumer",
    "ConsumerSettings",
    "EventStream",
    "FailedBatch",
    "GroupRange",
    "HandlerTimedOut",
    "Interest",
    "InvalidCondition",
    "InvalidCursor",
    "InvalidSubscription",
    "Listener",
    "ListenerClosed",
    "ListenerSettings",
    "ListenerTooSlow",
    "Listening",
    "Match",
    "MatchedEvent",
    "Matching",
    "NotDead",
    "Publication",
    "PublishFailed",
    "Publisher",
    "PublisherSettings",
    "RangeLost",
    "Refused",
    "ServerSentEvent",
    "StreamRequest",
    "StreamSettings",
    "SubscriptionLost",
    "UnknownGroup",
    "as_json",
    "by_topic",
    "create_group",
    "cursors",
    "drop_dead",
    "give_up_handler",
    "group_names",
    "keep_subscriptions",
    "list_dead",
    "list_waiting",
    "move_cursor",
    "peek",
    "poll_group",
    "publish",
    "publish_all",
    "publish_all_sync",
    "publish_sync",
    "read_next",
    "release_range",
    "remove_group",
    "rescale_group",
    "retry_dead",
    "settled_matches",
    "show_dead",
    "subscribe",
    "subscribe_sync",
    "unsubscribe",
    "unsubscribe_sync",
]
