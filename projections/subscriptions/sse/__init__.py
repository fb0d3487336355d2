"""Server-sent events: a subscription as a stream that browsers follow."""

from projections.subscriptions.listening import Interest
from projections.subscriptions.settings import StreamSettings
from projections.subscriptions.sse.rendering import ServerSentEvent, as_json, by_topic
from projections.subscriptions.sse.request import Refused, StreamRequest, client_address
from projections.subscriptions.sse.server import EventStream

__all__ = [
    "EventStream",
    "Interest",
    "Refused",
    "ServerSentEvent",
    "StreamRequest",
    "StreamSettings",
    "as_json",
    "by_topic",
    "client_address",
]
