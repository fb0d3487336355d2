"""Who can be a tenant: the same for all that has one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

import pytest

from journal import Database, ProjectionsError
from projections.webhooks import Endpoints, EndpointSettings, Schedules, send
from projections.webhooks.api import TokenAuth

NO_DATABASE = cast("Database", None)
"""What is refused is refused before anything is asked there."""


async def _endpoint(tenant: str) -> None:
    await Endpoints(NO_DATABASE).create(tenant, EndpointSettings(url="https://example.com/"))


async def _message(tenant: str) -> None:
    await send(None, tenant, "a.b", {})


async def _schedule(tenant: str) -> None:
    await Schedules(NO_DATABASE).create(tenant, "daily", "@daily", timezone="UTC", topic="a.b", data={})


async def _token(tenant: str) -> None:
    TokenAuth(signing_keys=[b"k" * 32]).issue(tenant, timedelta(hours=1))


@pytest.mark.parametrize("tenant", ["", "x" * 201])
@pytest.mark.parametrize("made", [_endpoint, _message, _schedule, _token])
async def test_a_tenant_has_1_to_200_characters(made: Callable[[str], Any], tenant: str) -> None:
    with pytest.raises(ProjectionsError, match="a tenant has 1 to 200 characters"):
        await made(tenant)
