"""The API of webhooks over HTTP: an application to mount, for administrators and for tenants."""

from projections.webhooks.api.app import webhooks_app
from projections.webhooks.api.authentication import Caller, TokenAuth, issue_tenant_token
from projections.webhooks.api.settings import ApiSettings
from projections.webhooks.errors import InvalidToken

__all__ = [
    "ApiSettings",
    "Caller",
    "InvalidToken",
    "TokenAuth",
    "issue_tenant_token",
    "webhooks_app",
]
