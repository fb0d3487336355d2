"""Bodies that are sent compressed: once for a message, and outside the event loop."""

from __future__ import annotations

import asyncio
import gzip
import threading
from itertools import pairwise

import pytest

from projections.webhooks import compression
from projections.webhooks.compression import Compression
from projections.webhooks.outgoing import Outgoing
from projections.webhooks.signed_request import gzip_body


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """What is compressed: its size, and in which thread."""
    found: list[tuple[int, int]] = []

    def counted(body: bytes) -> bytes:
        found.append((len(body), threading.get_ident()))
        return gzip_body(body)

    monkeypatch.setattr(compression, "gzip_body", counted)
    return found


def request(body: bytes) -> Outgoing:
    return Outgoing("https://example.com/", (("webhook-id", "m"),), body)


async def test_a_large_body_is_compressed_once_for_all_and_not_in_the_loop(
    made: list[tuple[int, int]],
) -> None:
    own, body = Compression(), b"ab" * 50_000
    impatient, *others = [asyncio.create_task(own.compressed(request(body))) for _ in range(5)]
    await asyncio.sleep(0)
    impatient.cancel()
    sent = [await other for other in others] + [await own.compressed(request(body))]

    assert all(one == another for one, another in pairwise(sent))
    assert (sent[0].headers[-1], gzip.decompress(sent[0].body)) == (("content-encoding", "gzip"), body)
    [(size, thread)] = made
    assert (size, thread == threading.get_ident()) == (len(body), False)


async def test_little_is_kept_and_small_bodies_not_at_all(
    made: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compression, "_KEPT", 250)
    own = Compression()
    bodies = [letter * 100_000 for letter in (b"a", b"b", b"c")]
    for body in (*bodies, *bodies, b"{}"):
        assert gzip.decompress((await own.compressed(request(body))).body) == body
    assert len(made) == 7
    assert own._kept.currsize <= 250
