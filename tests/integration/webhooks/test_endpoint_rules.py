"""What an endpoint may become from what it is, how many a tenant makes, and how many are listed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from journal import Database
from projections.webhooks import (
    Endpoints,
    EndpointSettings,
    NotAllowed,
    NotFound,
    Schedules,
)
from projections.webhooks.endpoints import ENABLED, EndpointState
from projections.webhooks.errors import InvalidQuery
from tests.fixtures.projections import fetchval
from tests.fixtures.webhooks import coded, endpoint

SETTINGS = EndpointSettings(url="https://example.com/hook")


class TestState:
    async def test_it_changes_from_what_is_expected(self, database: Database) -> None:
        name = await endpoint(database, "ep_1")

        await Endpoints(database).set_state("acme", name, "paused", "moving", expected=ENABLED)

        one = await Endpoints(database).get("acme", name)
        assert (one.state, one.reason) == ("paused", "moving")

    @pytest.mark.parametrize("state", ["active", "paused"])
    async def test_what_is_disabled_stays_so_until_it_is_enabled(
        self, database: Database, state: EndpointState
    ) -> None:
        endpoints, name = Endpoints(database), await endpoint(database, "ep_1")
        await endpoints.set_state("acme", name, "disabled", "gone")

        with pytest.raises(
            NotAllowed,
            check=coded("wrong_state"),
            match=r"^endpoint 'ep_1' is disabled \(gone\), not active or paused: enable it first$",
        ):
            await endpoints.set_state("acme", name, state, expected=ENABLED)

        assert (await endpoints.get("acme", name)).state == "disabled"

    async def test_another_tenant_does_not_learn_what_it_is(self, database: Database) -> None:
        name = await endpoint(database, "ep_1")

        with pytest.raises(NotFound, check=coded("unknown_endpoint")):
            await Endpoints(database).set_state("globex", name, "active", expected=["disabled"])


class TestRoom:
    async def test_endpoints_that_are_made_at_once_do_not_pass_what_a_tenant_may_have(
        self, database: Database
    ) -> None:
        await Endpoints(database).create("globex", SETTINGS)
        making = (Endpoints(database).create("acme", SETTINGS, at_most=2) for _ in range(6))

        made = await asyncio.gather(*making, return_exceptions=True)

        _refused(made, 4, "a tenant has at most 2 endpoints; an administrator can make more")
        assert await fetchval(database, "SELECT count(*) FROM projections.webhook_endpoints") == 3

    async def test_schedules_that_are_made_at_once_do_not_pass_what_a_tenant_may_have(
        self, database: Database
    ) -> None:
        making = (
            Schedules(database).create(
                "acme", f"n{place}", "@daily", timezone="UTC", topic="a", data={}, at_most=2
            )
            for place in range(6)
        )

        made = await asyncio.gather(*making, return_exceptions=True)

        _refused(made, 4, "a tenant has at most 2 schedules; an administrator can make more")
        assert len(await Schedules(database).list("acme")) == 2

    @pytest.mark.slow
    async def test_who_makes_one_of_the_same_tenant_waits_for_who_does(self, database: Database) -> None:
        async with database.transaction() as session:
            await session.fetchval("SELECT projections._check_room_v1('endpoints', 'acme', 1)")
            other = asyncio.create_task(Endpoints(database).create("acme", SETTINGS, at_most=1))
            await Endpoints(database).create("acme", SETTINGS)
            assert not other.done()

        with pytest.raises(NotAllowed, check=coded("too_many")):
            await other


@pytest.mark.parametrize("limit", [0, -1, 1001])
@pytest.mark.parametrize("of", [Endpoints, Schedules])
async def test_a_page_has_1_to_1000(database: Database, of: type[Endpoints | Schedules], limit: int) -> None:
    with pytest.raises(InvalidQuery, match=f"^limit must be 1 to 1000, not {limit}$"):
        await of(database).list(None, limit=limit)


async def test_the_table_holds_the_tenants_that_the_library_lets_through(database: Database) -> None:
    made = await Endpoints(database).create("n" * 200, SETTINGS)

    assert made.endpoint.tenant == "n" * 200
    with pytest.raises(Exception, match="tenant_has_1_to_200_characters"):
        await endpoint(database, "ep_1", tenant="n" * 201)


def _refused(made: list[Any], number: int, said: str) -> None:
    errors = [one for one in made if isinstance(one, BaseException)]
    assert [getattr(one, "code", one) for one in errors] == ["too_many"] * number
    assert {str(one) for one in errors} == {said}
