"""
Webhooks: endpoints of tenants, to which matching events are delivered over HTTP, and a log of what was tried.

Receivers of webhooks need :func:`verify` alone, and no extra. The HTTP API is in :mod:`projections.webhooks.api`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from projections.webhooks.addresses import AddressRules
    from projections.webhooks.ciphers import Cipher, FernetCipher, PlainCipher, cipher_from_environment
    from projections.webhooks.claims import Claimed
    from projections.webhooks.deliverer import deliver
    from projections.webhooks.deliveries import Deliveries, Delivery, DeliveryFilter, DeliveryWithPayload
    from projections.webhooks.delivery_observer import DeliveryObserver
    from projections.webhooks.duties import Duties
    from projections.webhooks.endpoints import Endpoint, Endpoints, EndpointSettings, NewEndpoint
    from projections.webhooks.errors import (
        CursorVersionError,
        DeliveryInFlight,
        FilterTooCostly,
        InvalidCursor,
        InvalidEndpoint,
        InvalidMessage,
        InvalidQuery,
        InvalidSchedule,
        InvalidSecret,
        NotListening,
        NotRetriable,
        OutdatedVersion,
        TooMany,
        UnknownDelivery,
        UnknownEndpoint,
        UnknownSchedule,
        VerificationFailed,
        WrongState,
    )
    from projections.webhooks.fan_out import FanOut
    from projections.webhooks.keys import Secret, generate_secret, parse_secret
    from projections.webhooks.log import DeliveryLog, MemoryLog, PostgresLog
    from projections.webhooks.messages import MESSAGE, Message, message_of, send, send_sync
    from projections.webhooks.receiver import Received, Receiver
    from projections.webhooks.retrying import RetryPolicy
    from projections.webhooks.running import run_webhooks
    from projections.webhooks.schedules import Schedule, Schedules
    from projections.webhooks.sender import HttpSender, NotSentError, Outgoing, Reply, Sender
    from projections.webhooks.settings import DeliverySettings
    from projections.webhooks.signing import VerifiedWebhook, sign, verify
    from projections.webhooks.ticks import Ticks
    from projections.webhooks.verifying import verify_endpoint

_HOMES = {
    "AddressRules": "addresses",
    "Cipher": "ciphers",
    "Claimed": "claims",
    "CursorVersionError": "errors",
    "Deliveries": "deliveries",
    "Delivery": "deliveries",
    "DeliveryFilter": "deliveries",
    "DeliveryInFlight": "errors",
    "FilterTooCostly": "errors",
    "DeliveryLog": "log",
    "DeliveryObserver": "delivery_observer",
    "DeliverySettings": "settings",
    "DeliveryWithPayload": "deliveries",
    "Duties": "duties",
    "Endpoint": "endpoints",
    "EndpointSettings": "endpoints",
    "Endpoints": "endpoints",
    "FanOut": "fan_out",
    "FernetCipher": "ciphers",
    "HttpSender": "sender",
    "InvalidCursor": "errors",
    "InvalidEndpoint": "errors",
    "InvalidMessage": "errors",
    "InvalidQuery": "errors",
    "InvalidSchedule": "errors",
    "InvalidSecret": "errors",
    "MESSAGE": "messages",
    "MemoryLog": "log",
    "Message": "messages",
    "NewEndpoint": "endpoints",
    "NotListening": "errors",
    "NotRetriable": "errors",
    "NotSentError": "sender",
    "Outgoing": "sender",
    "PlainCipher": "ciphers",
    "PostgresLog": "log",
    "Received": "receiver",
    "Receiver": "receiver",
    "Reply": "sender",
    "RetryPolicy": "retrying",
    "Schedule": "schedules",
    "Schedules": "schedules",
    "Secret": "keys",
    "Sender": "sender",
    "Ticks": "ticks",
    "OutdatedVersion": "errors",
    "TooMany": "errors",
    "UnknownDelivery": "errors",
    "UnknownEndpoint": "errors",
    "UnknownSchedule": "errors",
    "VerificationFailed": "errors",
    "VerifiedWebhook": "signing",
    "WrongState": "errors",
    "cipher_from_environment": "ciphers",
    "deliver": "deliverer",
    "generate_secret": "keys",
    "message_of": "messages",
    "parse_secret": "keys",
    "run_webhooks": "running",
    "send": "messages",
    "send_sync": "messages",
    "sign": "signing",
    "verify": "signing",
    "verify_endpoint": "verifying",
}
"""Where each name is. They are imported when they are asked for: most need packages of the extra ``webhooks``."""

__all__ = [
    "MESSAGE",
    "AddressRules",
    "Cipher",
    "Claimed",
    "CursorVersionError",
    "Deliveries",
    "Delivery",
    "DeliveryFilter",
    "DeliveryInFlight",
    "DeliveryLog",
    "DeliveryObserver",
    "DeliverySettings",
    "DeliveryWithPayload",
    "Duties",
    "Endpoint",
    "EndpointSettings",
    "Endpoints",
    "FanOut",
    "FernetCipher",
    "FilterTooCostly",
    "HttpSender",
    "InvalidCursor",
    "InvalidEndpoint",
    "InvalidMessage",
    "InvalidQuery",
    "InvalidSchedule",
    "InvalidSecret",
    "MemoryLog",
    "Message",
    "NewEndpoint",
    "NotListening",
    "NotRetriable",
    "NotSentError",
    "OutdatedVersion",
    "Outgoing",
    "PlainCipher",
    "PostgresLog",
    "Received",
    "Receiver",
    "Reply",
    "RetryPolicy",
    "Schedule",
    "Schedules",
    "Secret",
    "Sender",
    "Ticks",
    "TooMany",
    "UnknownDelivery",
    "UnknownEndpoint",
    "UnknownSchedule",
    "VerificationFailed",
    "VerifiedWebhook",
    "WrongState",
    "cipher_from_environment",
    "deliver",
    "generate_secret",
    "message_of",
    "parse_secret",
    "run_webhooks",
    "send",
    "send_sync",
    "sign",
    "verify",
    "verify_endpoint",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
