"""Secrets of endpoints: which can be, how they are stored, and how their key is changed."""

from __future__ import annotations

import pytest
from cryptography.fernet import Fernet

from journal import Database
from projections.webhooks import Endpoints, EndpointSettings, generate_secret
from projections.webhooks.encryption import FernetCipher
from projections.webhooks.errors import InvalidEndpoint, InvalidSecret
from projections.webhooks.signing import SigningKey

SETTINGS = EndpointSettings(url="https://example.com/hook")
OLD, NEW = Fernet.generate_key().decode(), Fernet.generate_key().decode()


async def test_secrets_are_stored_anew_with_the_newest_key(database: Database) -> None:
    plain = await Endpoints(database).create("acme", SETTINGS)
    old = await Endpoints(database, FernetCipher([OLD])).create("acme", SETTINGS)

    assert await Endpoints(database, FernetCipher([NEW, OLD])).renew_secrets() == 2

    endpoints = Endpoints(database, FernetCipher([NEW]))
    for made in (plain, old):
        assert await endpoints.secrets("acme", made.endpoint.endpoint_id) == [made.secret]


async def test_one_that_can_not_be_read_keeps_all_as_they_are(database: Database) -> None:
    plain = await Endpoints(database).create("acme", SETTINGS)
    await Endpoints(database, FernetCipher([OLD])).create("acme", SETTINGS)

    with pytest.raises(InvalidSecret):
        await Endpoints(database, FernetCipher([NEW])).renew_secrets()

    assert await Endpoints(database).secrets("acme", plain.endpoint.endpoint_id) == [plain.secret]


async def test_a_public_key_signs_nothing(database: Database) -> None:
    key = generate_secret("v1a")
    assert isinstance(key, SigningKey)
    endpoints = Endpoints(database)
    made = await endpoints.create("acme", SETTINGS)

    with pytest.raises(InvalidSecret, match="whsk_"):
        await endpoints.create("acme", SETTINGS, key.public)
    with pytest.raises(InvalidSecret, match="whsk_"):
        await endpoints.rotate_secret("acme", made.endpoint.endpoint_id, key.public.reveal())


async def test_a_filter_with_a_number_that_is_none_is_refused(database: Database) -> None:
    settings = SETTINGS.model_copy(update={"filter": {"data": {"a": float("inf")}}})

    with pytest.raises(InvalidEndpoint, match=r"filter\.data\.a"):
        await Endpoints(database).create("acme", settings)
