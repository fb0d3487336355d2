"""The API of webhooks over HTTP: an application to mount, for administrators and for tenants."""

from journal import InvalidValue
from projections.webhooks.api.app import webhooks_app
from projections.webhooks.api.authentication import Caller, TokenAuth
from projections.webhooks.api.settings import ApiSettings

__all__ = [
    "ApiSettings",
    "Caller",
    "InvalidValue",
    "TokenAuth",
    "webhooks_app",
]
