"""The delivery log: events that were for endpoints, and how each attempt ended; listed, paged and measured."""

from projections.webhooks.log.delivery_log import DeliveryLog
from projections.webhooks.log.memory import MemoryLog
from projections.webhooks.log.metrics import DataPoint, Metrics, MetricsRequest
from projections.webhooks.log.postgres import PostgresLog
from projections.webhooks.log.records import AttemptWithEvent, LoggedAttempt, LoggedEvent, Page
from projections.webhooks.log.requests import AttemptsRequest, EventsRequest

__all__ = [
    "AttemptWithEvent",
    "AttemptsRequest",
    "DataPoint",
    "DeliveryLog",
    "EventsRequest",
    "LoggedAttempt",
    "LoggedEvent",
    "MemoryLog",
    "Metrics",
    "MetricsRequest",
    "Page",
    "PostgresLog",
]
