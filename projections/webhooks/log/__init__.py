"""The delivery log: events that were for endpoints, and how each attempt ended; listed, paged and measured."""

from journal import InvalidValue
from projections.webhooks.log.metrics import DataPoint as DataPoint
from projections.webhooks.log.metrics import Metrics as Metrics
from projections.webhooks.log.metrics import MetricsRequest as MetricsRequest
from projections.webhooks.log.postgres import PostgresLog
from projections.webhooks.log.records import AttemptsRequest as AttemptsRequest
from projections.webhooks.log.records import AttemptWithEvent as AttemptWithEvent
from projections.webhooks.log.records import EventsRequest as EventsRequest
from projections.webhooks.log.records import LoggedAttempt as LoggedAttempt
from projections.webhooks.log.records import LoggedEvent as LoggedEvent
from projections.webhooks.log.records import LogPage as LogPage

__all__ = [
    "InvalidValue",
    "PostgresLog",
]
