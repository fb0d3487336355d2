"""What tenants share in a sender: lookups of names, and the requests to a host. And what the sender itself lacks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from projections.webhooks import failure_codes
from projections.webhooks import sender as sending_module
from projections.webhooks.dns_lookups import Lookups
from projections.webhooks.failure_codes import has_way
from projections.webhooks.fair_shares import Shares
from projections.webhooks.outgoing import Outgoing
from projections.webhooks.sender import NotSentError
from tests.fixtures.files import no_files
from tests.fixtures.loop_clock import pass_time
from tests.fixtures.raw_server import Exchange, RawServer, hang, respond
from tests.fixtures.webhooks_wire import LONG, SHORT, outgoing, sending


def of(tenant: str, url: str, timeout: timedelta = LONG, *, share: float = 0.5) -> Outgoing:
    return outgoing(url, timeout=timeout)._replace(tenant=tenant, share=share)


class Resolver:
    """Names that end in ``.silent`` are not answered, until they are released; all others are this machine."""

    def __init__(self) -> None:
        self.released = asyncio.Event()
        self.asked: list[str] = []

    async def __call__(self, host: str) -> Sequence[str]:
        self.asked.append(host)
        if host.endswith(".silent"):
            await self.released.wait()
        return ["127.0.0.1"]


class TestShares:
    async def test_one_has_its_share_and_others_have_the_rest(self) -> None:
        shares = Shares(8)
        takers = [asyncio.create_task(shares.take("hostile", 0.5)) for _ in range(100)]
        await asyncio.sleep(0)
        assert sum(task.done() for task in takers) == 4
        async with asyncio.timeout(300):
            await shares.take("victim", 0.5)
            await shares.take("victim", 0.5)
        for task in takers:
            task.cancel()
        await asyncio.gather(*takers, return_exceptions=True)
        for tenant in ["hostile"] * 4 + ["victim"] * 2:
            shares.give_back(tenant)
        assert shares.idle

    async def test_who_was_alone_has_all_until_others_come(self) -> None:
        shares = Shares(4)
        for _ in range(4):
            await shares.take("first", 1)
        later = [
            asyncio.create_task(shares.take(tenant, 0.5)) for tenant in ["first"] * 4 + ["second", "third"]
        ]
        await asyncio.sleep(0)
        served = []
        for _ in range(3):
            shares.give_back("first")
            await asyncio.sleep(0)
            served.append([task.done() for task in later])
        assert [sum(done) for done in served] == [1, 2, 2]
        assert all(served[1][4:])
        for task in later:
            task.cancel()
        await asyncio.gather(*later, return_exceptions=True)

    async def test_those_who_wait_are_served_in_turn(self) -> None:
        shares, served = Shares(1), []
        await shares.take("first", 1)

        async def wait(tenant: str) -> None:
            await shares.take(tenant, 1)
            served.append(tenant)
            shares.give_back(tenant)

        waiting = [asyncio.create_task(wait(tenant)) for tenant in "aaab"]
        await asyncio.sleep(0)
        shares.give_back("first")
        await asyncio.gather(*waiting)
        assert served[:2] == ["a", "b"]
        assert shares.idle

    async def test_who_is_cancelled_when_its_place_has_come_gives_it_back(self) -> None:
        shares = Shares(1)
        await shares.take("first", 1)
        waiting = asyncio.create_task(shares.take("second", 1))
        await asyncio.sleep(0)
        shares.give_back("first")
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert shares.idle


class TestLookups:
    async def test_silent_names_of_one_tenant_hold_up_no_other(self) -> None:
        resolver = Resolver()
        async with RawServer(respond(204)) as server, sending(resolve=resolver) as sender:
            hostile = [
                asyncio.create_task(sender.send(of("hostile", f"http://{n}.silent:{server.port}/")))
                for n in range(100)
            ]
            while len(resolver.asked) < 32:
                await asyncio.sleep(0)
            reply = await sender.send(of("victim", server.url_at("hooks.example")))
            assert reply.code == "204"
            assert len(resolver.asked) == 33
            for task in hostile:
                task.cancel()
            await asyncio.gather(*hostile, return_exceptions=True)

    async def test_what_waits_for_its_turn_is_not_on_the_endpoints_account(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sending_module, "_PATIENCE", LONG.total_seconds() * 2)
        resolver = Resolver()
        async with RawServer(respond(204)) as server, sending(resolve=resolver) as sender:
            first = asyncio.create_task(
                sender.send(of("one", f"http://a.silent:{server.port}/", 3 * LONG, share=0.01))
            )
            while not resolver.asked:
                await asyncio.sleep(0)
            second = asyncio.create_task(sender.send(of("one", server.url_at("hooks.example"), share=0.01)))
            for _ in range(20):  # until it waits
                await asyncio.sleep(0)
            pass_time(LONG)
            resolver.released.set()
            assert ((await first).code, (await second).code) == ("204", "204")
            assert (await second).took < LONG

    async def test_a_name_that_is_never_answered_is_charged_to_its_endpoint(self) -> None:
        async with sending(resolve=Resolver()) as sender:
            reply = await sender.send(of("one", "http://a.silent/", SHORT))
        assert reply.code == "timeout"

    async def test_a_turn_that_does_not_come_is_no_attempt(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sending_module, "_PATIENCE", 0.05)
        resolver = Resolver()
        async with sending(resolve=resolver) as sender:
            first = asyncio.create_task(sender.send(of("one", "http://a.silent/", share=0.01)))
            while not resolver.asked:
                await asyncio.sleep(0)
            with pytest.raises(NotSentError):
                await sender.send(of("one", "http://b.silent/", share=0.01))
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)

    async def test_names_that_were_slow_hold_up_no_others_of_their_tenant(self) -> None:
        resolver = Resolver()
        resolver.released.set()
        lookups = Lookups(resolver, timedelta(0), places=1, slow_places=1, slow=timedelta(seconds=-1))
        await (await lookups.begin("a.silent", "one", 1))(LONG)
        resolver.released.clear()
        await lookups.begin("a.silent", "one", 1)
        async with asyncio.timeout(300):
            assert await (await lookups.begin("other", "one", 1))(LONG) == ["127.0.0.1"]
        lookups.close()

    async def test_a_name_is_looked_up_once_at_a_time(self) -> None:
        resolver = Resolver()
        lookups = Lookups(resolver, timedelta(seconds=10))
        begun = [await lookups.begin("a.silent", tenant, 0.5) for tenant in "abc"]
        resolver.released.set()
        assert [await one(LONG) for one in begun] == [["127.0.0.1"]] * 3
        assert resolver.asked == ["a.silent"]


class TestHosts:
    async def test_a_host_has_no_more_than_its_limit_on_their_way_whatever_the_endpoint(self) -> None:
        async with RawServer(hang()) as server, sending(host_limit=4) as sender:
            tasks = [
                asyncio.create_task(sender.send(of(f"t{n}", f"{server.url}/{n}", share=1))) for n in range(8)
            ]
            await server.received(4)
            async with RawServer(respond(204)) as other:  # by the end of this a fifth would have come
                assert (await sender.send(of("t", other.url_at("localhost")))).code == "204"
            assert len(server.requests) == 4
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def test_a_host_that_answers_at_once_gets_no_more_than_its_limit_in_a_second(self) -> None:
        loop, times = asyncio.get_running_loop(), []

        async def timed(exchange: Exchange) -> None:
            times.append(loop.time())
            await respond(204)(exchange)

        async with RawServer(timed) as server, sending(host_limit=3) as sender:
            await asyncio.gather(*(sender.send(of("t", server.url, share=1)) for _ in range(7)))
        # What arrives is as late as it likes, but no earlier than a second after the one that left it its place.
        assert times[6] - times[0] > 1.5

    async def test_tenants_share_a_host(self) -> None:
        async with RawServer(hang()) as server, sending(host_limit=4) as sender:
            tasks = [asyncio.create_task(sender.send(of("hostile", server.url))) for _ in range(8)]
            await server.received(2)
            tasks.append(asyncio.create_task(sender.send(of("victim", server.url))))
            await server.received(3)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


class TestShortage:
    @pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
    async def test_no_files_are_not_the_receivers_fault(self, host: str) -> None:
        async with RawServer(respond(204)) as server, sending() as sender:
            with no_files(), pytest.raises(NotSentError) as raised:
                await sender.send(outgoing(server.url_at(host)))
            assert raised.value.everywhere
            assert (await sender.send(outgoing(server.url_at(host)))).code == "204"

    @pytest.mark.parametrize(
        ("error", "everywhere"),
        [(OSError(12, "no memory"), True), (OSError(105, "no buffers"), True), (MemoryError(), True),
         (OSError(99, "no port"), False)],
        ids=["ENOMEM", "ENOBUFS", "MemoryError", "EADDRNOTAVAIL"],
    )  # fmt: skip
    async def test_what_cannot_be_had_here_is_no_attempt(
        self, monkeypatch: pytest.MonkeyPatch, error: Exception, everywhere: bool
    ) -> None:
        async def connect(*_: Any) -> None:
            raise error

        async with sending() as sender:
            monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", connect)
            with pytest.raises(NotSentError) as raised:
                await sender.send(outgoing("http://127.0.0.1:9999/"))
        assert raised.value.everywhere == everywhere

    async def test_nor_is_what_could_not_be_had_for_one_of_several_addresses(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def connect(_: Any, address: tuple[Any, ...]) -> None:
            raise OSError(105 if address[0] == "127.0.0.1" else 101, f"so at {address[0]}")

        async def several(host: str) -> Sequence[str]:
            return ["127.0.0.1", "::1"]

        async with sending(
            sending_module.AddressRules(allow=("::1/128", "127.0.0.0/8")), resolve=several
        ) as sender:
            monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", connect)
            with pytest.raises(NotSentError) as raised:
                await sender.send(outgoing("http://two.example:9000/"))
        assert raised.value.everywhere

    @pytest.mark.parametrize(
        ("errors", "reachable", "code"),
        [
            ({"::1": 99}, set(), "network_error"),
            ({"::1": 99}, {"::1"}, None),
            ({"127.0.0.1": 111, "::1": 99}, {"127.0.0.1"}, "connection_refused"),
            ({"127.0.0.1": 99, "::1": 99}, {"127.0.0.1"}, None),
            ({"127.0.0.1": 99, "::1": 101}, {"127.0.0.1"}, None),
            ({"127.0.0.1": 99, "::1": 111}, {"127.0.0.1", "::1"}, None),
        ],
        ids=["no IPv6", "no port", "IPv4 refused, no IPv6", "no port, no IPv6", "no port, no route", "no port of IPv4"],
    )  # fmt: skip
    async def test_a_lack_of_ports_is_no_attempt_and_a_machine_without_ipv6_is_no_reason_to_wait(
        self, monkeypatch: pytest.MonkeyPatch, errors: dict[str, int], reachable: set[str], code: str | None
    ) -> None:
        async def connect(_: Any, address: tuple[Any, ...]) -> None:
            raise OSError(errors[address[0]], f"Connect call failed {address}")

        async def looked_up(host: str) -> Sequence[str]:
            return list(errors)

        rules = sending_module.AddressRules(allow=("::1/128", "127.0.0.0/8"))
        monkeypatch.setattr(failure_codes, "has_way", reachable.__contains__)
        async with sending(rules, resolve=looked_up) as sender:
            monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", connect)
            if code is None:
                with pytest.raises(NotSentError, match="no port is left"):
                    await sender.send(outgoing("http://six.example:9000/"))
            else:
                assert (await sender.send(outgoing("http://six.example:9000/"))).code == code

    def test_there_is_a_way_where_there_are_an_address_and_a_route(self) -> None:
        assert has_way("127.0.0.1")
        assert not has_way("fe80::1")  # on which link?
