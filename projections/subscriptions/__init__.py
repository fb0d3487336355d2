"""Subscriptions of groups of consumers to events: matching, reading, publishing."""

from journal import (
    DatabaseError,
    DatabaseUnavailable,
    DatabaseWentBack,
    EventIdConflict,
    InvalidEvent,
    InvalidValue,
    NotFound,
    SchemaError,
)
from projections.errors import InvalidHandler
from projections.subscriptions.consumer import Consumer
from projections.subscriptions.dead_letters import DeadLetters
from projections.subscriptions.dead_letters import FailedBatch as FailedBatch
from projections.subscriptions.errors import InvalidSubscription as InvalidSubscription
from projections.subscriptions.errors import (
    PublishFailed,
    SubscriptionLost,
)
from projections.subscriptions.group_lag import group_lag
from projections.subscriptions.groups import create_group
from projections.subscriptions.groups import cursors as cursors
from projections.subscriptions.groups import give_up_handler as give_up_handler
from projections.subscriptions.groups import group_names as group_names
from projections.subscriptions.groups import remove_group as remove_group
from projections.subscriptions.groups import rescale_group as rescale_group
from projections.subscriptions.groups import rewind_group as rewind_group
from projections.subscriptions.listening import Interest, Listener
from projections.subscriptions.matched_event import MatchedEvent
from projections.subscriptions.matching import Matching
from projections.subscriptions.publisher import Publisher
from projections.subscriptions.publishing import (
    Publication,
    publish,
    publish_all,
    publish_all_sync,
    publish_sync,
)
from projections.subscriptions.settings import (
    ConsumerSettings,
    ListenerSettings,
    PublisherSettings,
    StreamSettings,
)
from projections.subscriptions.sse.request import StreamRequest
from projections.subscriptions.sse.server import EventStream
from projections.subscriptions.subscribing import subscribe, subscribe_sync, unsubscribe, unsubscribe_sync

__all__ = [
    "Consumer",
    "ConsumerSettings",
    "DatabaseError",
    "DatabaseUnavailable",
    "DatabaseWentBack",
    "DeadLetters",
    "EventIdConflict",
    "EventStream",
    "Interest",
    "InvalidEvent",
    "InvalidHandler",
    "InvalidValue",
    "Listener",
    "ListenerSettings",
    "MatchedEvent",
    "Matching",
    "NotFound",
    "Publication",
    "PublishFailed",
    "Publisher",
    "PublisherSettings",
    "SchemaError",
    "StreamRequest",
    "StreamSettings",
    "SubscriptionLost",
    "create_group",
    "group_lag",
    "publish",
    "publish_all",
    "publish_all_sync",
    "publish_sync",
    "subscribe",
    "subscribe_sync",
    "unsubscribe",
    "unsubscribe_sync",
]
