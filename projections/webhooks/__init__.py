"""
Webhooks: endpoints of tenants, to which matching events are delivered over HTTP, and a log of what was tried.

Receivers of webhooks need :func:`verify` alone, and no extra. The HTTP API is in :mod:`projections.webhooks.api`,
and the page for tenants in :mod:`projections.webhooks.page`.
"""

from typing import TYPE_CHECKING

from projections.lazy import lazy_names
from projections.webhooks.deliveries import Delivery as Delivery
from projections.webhooks.stats import EndpointStats as EndpointStats
from projections.webhooks.stats import endpoint_stats as endpoint_stats

if TYPE_CHECKING:
    from journal import EventIdConflict as EventIdConflict
    from journal import InvalidEvent as InvalidEvent
    from journal import InvalidValue as InvalidValue
    from journal import NotAllowed as NotAllowed
    from journal import NotFound as NotFound
    from journal import ProjectionsError as ProjectionsError
    from journal import SchemaError as SchemaError
    from projections.errors import InvalidHandler as InvalidHandler
    from projections.webhooks.addresses import AddressRules as AddressRules
    from projections.webhooks.deliveries import Deliveries as Deliveries
    from projections.webhooks.deliveries import DeliveryFilter as DeliveryFilter
    from projections.webhooks.delivery_metrics import WebhookMetrics as WebhookMetrics
    from projections.webhooks.endpoint_verification import verify_endpoint as verify_endpoint
    from projections.webhooks.endpoints import Endpoints as Endpoints
    from projections.webhooks.endpoints import EndpointSettings as EndpointSettings
    from projections.webhooks.errors import VerificationFailed as VerificationFailed
    from projections.webhooks.fan_out import FanOut as FanOut
    from projections.webhooks.messages import Message as Message
    from projections.webhooks.messages import send as send
    from projections.webhooks.messages import send_sync as send_sync
    from projections.webhooks.receiver import Receiver as Receiver
    from projections.webhooks.retry_policy import RetryPolicy as RetryPolicy
    from projections.webhooks.run import run_webhooks as run_webhooks
    from projections.webhooks.schedules import Schedules as Schedules
    from projections.webhooks.sender import HttpSender as HttpSender
    from projections.webhooks.settings import DeliverySettings as DeliverySettings
    from projections.webhooks.signing import generate_secret as generate_secret
    from projections.webhooks.signing import sign as sign
    from projections.webhooks.signing import verify as verify
    from projections.webhooks.topics import Topic as Topic
    from projections.webhooks.tracing import TracedSender as TracedSender

__all__, __getattr__, __dir__ = lazy_names()
