"""What times and names of tenants can be, wherever somebody gives them."""

from __future__ import annotations

from datetime import datetime

from journal import ProjectionsError
from projections.webhooks.errors import InvalidQuery

LONGEST_TENANT = 200
"""Characters."""


def check_tenant(tenant: object, refusal: type[ProjectionsError]) -> None:
    """Check that somebody can be a tenant."""
    if not isinstance(tenant, str) or not 1 <= len(tenant) <= LONGEST_TENANT:
        raise refusal(f"a tenant has 1 to {LONGEST_TENANT} characters, not {tenant!r:.80}")


def check_time(name: str, value: datetime | None, refusal: type[ProjectionsError] = InvalidQuery) -> None:
    """Check that a time, where there is one, has a zone."""
    if value is not None and value.utcoffset() is None:
        raise refusal(f"{name} has no zone: {value.isoformat()}")
