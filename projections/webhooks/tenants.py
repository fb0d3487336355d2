"""Tenants: whose endpoints, messages, schedules and tokens are."""

from __future__ import annotations

from journal import ProjectionsError

__all__ = ["LONGEST_TENANT", "check_tenant"]

LONGEST_TENANT = 200
"""Characters."""


def check_tenant(tenant: object, refusal: type[ProjectionsError]) -> None:
    """
    Check that somebody can be a tenant.

    Args:
        tenant: Its name.
        refusal: What is raised where it can not be.
    """
    if not isinstance(tenant, str) or not 1 <= len(tenant) <= LONGEST_TENANT:
        raise refusal(f"a tenant has 1 to {LONGEST_TENANT} characters, not {tenant!r:.80}")
