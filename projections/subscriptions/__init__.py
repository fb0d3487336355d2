"""Subscriptions of groups of consumers to events: matching, reading, publishing."""

from projections.subscriptions.consumer import Consumer
from projections.subscriptions.errors import (
    GroupRangeLost,
    HandlerTimedOut,
    InvalidCondition,
    InvalidCursor,
    InvalidSubscription,
    ListenerClosed,
    ListenerTooSlow,
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
    leave_group,
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
    dead_letters,
    failed_events,
    forget_dead_letter,
    replay_dead_letter,
    waiting_retries,
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
    "GroupRangeLost",
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
    "Publication",
    "PublishFailed",
    "Publisher",
    "PublisherSettings",
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
    "dead_letters",
    "failed_events",
    "forget_dead_letter",
    "give_up_handler",
    "group_names",
    "keep_subscriptions",
    "leave_group",
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
    "replay_dead_letter",
    "rescale_group",
    "settled_matches",
    "subscribe",
    "subscribe_sync",
    "unsubscribe",
    "unsubscribe_sync",
    "waiting_retries",
]
