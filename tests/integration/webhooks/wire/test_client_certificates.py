"""TLS that shows a client certificate: what a receiver sees, and what becomes of one that it does not take."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from cryptography.fernet import Fernet

from journal import Database, NotFound
from projections.webhooks import client_tls
from projections.webhooks.client_tls import ClientContexts
from projections.webhooks.credentials import ClientCertificate, OAuthClient, OAuthFacts, read_certificate
from projections.webhooks.encryption import FernetCipher
from projections.webhooks.sender import HttpSender
from tests.fixtures.certificates import Authority, Certificate
from tests.fixtures.connect_proxy import ConnectProxy
from tests.fixtures.projections import execute, fetchval
from tests.fixtures.webhook_delivery import attempts, delivering, endpoints, finished, hook, until_rows
from tests.fixtures.webhook_delivery import sent as messages_sent
from tests.fixtures.webhooks_wire import outgoing, sending

SERVER, AUTHORITY = Certificate(), Authority()


class Seen:
    """A server that asks for a client certificate, and keeps the names of those that came."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.url = ""


@asynccontextmanager
async def asking(authority: Authority = AUTHORITY) -> AsyncIterator[Seen]:
    seen = Seen()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                while True:
                    head = await reader.readuntil(b"\r\n\r\n")
                    length = next(
                        line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
                    )
                    await reader.readexactly(int(length.split(b":")[1]))
                    subject = writer.get_extra_info("ssl_object").getpeercert()["subject"]
                    seen.names.append(dict(pair for rdn in subject for pair in rdn)["commonName"])
                    writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
                    await writer.drain()
        finally:
            writer.transport.abort()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.create_task(serve(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=SERVER.server_context_asking(authority))
    seen.url = f"https://localhost:{server.sockets[0].getsockname()[1]}/"
    try:
        yield seen
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)


def trusting() -> ssl.SSLContext:
    return SERVER.client_context()


def shown(name: str, authority: Authority = AUTHORITY) -> ClientCertificate:
    return read_certificate(authority.client(name))[1]


@pytest.mark.slow
async def test_each_endpoint_shows_its_own_and_connections_are_not_shared() -> None:
    async with asking() as server, sending(ssl_context=trusting()) as sender:
        for name in ("acme", "globex", "acme"):
            request = outgoing(server.url)._replace(certificate=certs[name])
            assert (await sender.send(request)).code == "204"
    assert server.names == ["acme", "globex", "acme"]


certs = {name: shown(name) for name in ("acme", "globex")}


async def test_it_is_shown_through_a_proxy_too() -> None:
    async with (
        asking() as server,
        ConnectProxy() as proxy,
        sending(ssl_context=trusting(), proxy=proxy.url()) as sender,
    ):
        reply = await sender.send(outgoing(server.url)._replace(certificate=certs["acme"]))
    assert (reply.code, server.names) == ("204", ["acme"])


async def test_a_url_of_access_tokens_is_not_shown_it() -> None:
    async with asking() as server, sending(ssl_context=trusting()) as sender:
        client = OAuthClient(OAuthFacts(token_url=server.url, client_id="acme"), "s3cret")
        reply = await sender.send(outgoing(server.url)._replace(certificate=certs["acme"], oauth=client))
    assert (reply.code, server.names) == ("token_error", [])


@pytest.mark.parametrize(
    "certificate", [None, shown("evil", Authority())], ids=["none", "of another authority"]
)
async def test_without_one_that_the_receiver_takes_the_attempt_fails(
    certificate: ClientCertificate | None,
) -> None:
    async with asking() as server, sending(ssl_context=trusting()) as sender:
        reply = await sender.send(outgoing(server.url)._replace(certificate=certificate))
    assert (reply.status, server.names) == (None, [])
    assert reply.code in {"tls_error", "connection_reset", "network_error"}


async def test_the_receiver_is_still_judged_by_what_the_sender_trusts() -> None:
    other = Certificate().client_context()
    async with asking() as server, sending(ssl_context=other) as sender:
        reply = await sender.send(outgoing(server.url)._replace(certificate=certs["acme"]))
    assert (reply.code, server.names) == ("tls_error", [])


async def test_a_key_that_was_stored_when_more_was_allowed_is_not_loaded() -> None:
    key, begins, chain = certs["acme"].pem.partition("-----BEGIN CERTIFICATE")
    large = ClientCertificate(key.replace("\n", "\n" + "A" * 4096, 1) + begins + chain)
    async with asking() as server, sending(ssl_context=trusting()) as sender:
        reply = await sender.send(outgoing(server.url)._replace(certificate=large))
    assert (reply.code, server.names) == ("tls_error", [])


async def test_a_context_is_made_once_for_all_who_wait_and_outlives_one_who_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make, made = client_tls._context, []

    def counted(trusted: ssl.SSLContext | None, certificate: ClientCertificate) -> ssl.SSLContext:
        made.append(certificate)
        return make(trusted, certificate)

    monkeypatch.setattr(client_tls, "_context", counted)
    contexts = ClientContexts(trusting())
    for name in ("acme", "globex"):
        impatient, *others = [asyncio.create_task(contexts.of(certs[name])) for _ in range(5)]
        await asyncio.sleep(0)
        impatient.cancel()
        assert len({await other for other in others} | {await contexts.of(certs[name])}) == 1
    alone = asyncio.create_task(contexts.of(last := shown("last")))
    await asyncio.sleep(0)
    alone.cancel()
    await asyncio.wait([alone])
    assert await contexts.of(last) is await contexts.of(last)
    assert made == [certs["acme"], certs["globex"], last]


def test_no_context_lets_the_receiver_choose_a_large_group() -> None:
    own = client_tls._context(trusting(), certs["acme"])
    for context in (client_tls.default_context(), own, HttpSender()._ssl):
        assert {one["kea"] for one in context.get_ciphers()} == {"kx-any", "kx-ecdhe"}


@pytest.mark.slow
async def test_one_that_is_set_is_shown_by_deliveries_from_then_on_and_its_key_nowhere(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    cipher = FernetCipher([Fernet.generate_key().decode()])
    service, pem = endpoints(database, cipher=cipher), AUTHORITY.client("first")
    key = pem.split("-----BEGIN PRIVATE KEY-----\n")[1].splitlines()[0]
    caplog.set_level(logging.DEBUG)
    async with asking() as server, sending(ssl_context=trusting()) as sender:
        endpoint_id, _ = await hook(database, server.url)
        await execute(
            database, "UPDATE projections.webhook_secrets SET secret = $1",
            cipher.encrypt("whsec_" + "A" * 32),
        )  # fmt: skip
        version = await service.set_certificate("acme", endpoint_id, pem)
        await messages_sent(database)
        async with delivering(database, sender, cipher=cipher):
            await finished(database)
            await service.set_certificate("acme", endpoint_id, AUTHORITY.client("second"), version=version)
            await messages_sent(database)
            await finished(database, 2)
            await service.set_certificate("acme", endpoint_id, None)
            await messages_sent(database)
            await until_rows(database, "state = 'pending' AND attempts = 1")
    assert server.names == ["first", "second"]
    assert [status for _, status, _ in await attempts(database)] == ["success", "success", "failed"]
    assert key not in caplog.text
    with pytest.raises(NotFound):
        await service.set_certificate("globex", endpoint_id, pem)


async def test_what_is_stored_is_encrypted_renewed_and_shown_without_the_key(database: Database) -> None:
    old, new = (Fernet.generate_key().decode() for _ in range(2))
    service = endpoints(database, cipher=FernetCipher([old]))
    endpoint_id, _ = await hook(database, "https://example.com/")
    pem = AUTHORITY.client("acme")
    await service.set_certificate(None, endpoint_id, pem)
    one = await service.get("acme", endpoint_id)
    assert one.certificate is not None
    assert (one.certificate.subject, one.certificate.expired, one.version) == ("CN=acme", False, 3)
    (listed,) = await service.list("acme")
    assert listed.certificate == one.certificate
    stored = await fetchval(database, "SELECT secret FROM projections.webhook_credentials")
    assert stored.startswith("fernet:")
    assert await endpoints(database, cipher=FernetCipher([new, old])).renew_secrets() == 2
    read = await endpoints(database, cipher=FernetCipher([new])).credentials("acme", endpoint_id)
    assert read.certificate is not None
    assert "PRIVATE KEY" in read.certificate.pem
    await service.remove("acme", endpoint_id)
    assert await fetchval(database, "SELECT count(*) FROM projections.webhook_credentials") == 0
