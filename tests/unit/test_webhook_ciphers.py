"""Secrets at rest: what is stored, what can be read with which keys, and what no error shows."""

from __future__ import annotations

import pytest
from cryptography.fernet import Fernet

from projections.webhooks.encryption import Cipher, FernetCipher, PlainCipher, cipher_from_environment
from projections.webhooks.errors import InvalidSecret

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OLD, NEW = Fernet.generate_key().decode(), Fernet.generate_key().decode()


@pytest.mark.parametrize("cipher", [PlainCipher(), FernetCipher([NEW]), FernetCipher([NEW, OLD])])
@pytest.mark.parametrize("text", [SECRET, "", "plain:", "fernet:é\n"])
def test_what_was_stored_is_read_again(cipher: Cipher, text: str) -> None:
    assert cipher.decrypt(cipher.encrypt(text)) == text


def test_what_is_stored_says_how() -> None:
    assert PlainCipher().encrypt(SECRET) == f"plain:{SECRET}"
    assert FernetCipher([NEW]).encrypt(SECRET).startswith("fernet:")


def test_an_encrypted_secret_does_not_show() -> None:
    assert SECRET[6:] not in FernetCipher([NEW]).encrypt(SECRET)


def test_a_new_key_in_front_reads_what_the_old_one_stored() -> None:
    stored = FernetCipher([OLD]).encrypt(SECRET)
    both = FernetCipher([NEW, OLD])

    assert both.decrypt(stored) == SECRET
    assert FernetCipher([NEW]).decrypt(both.encrypt(both.decrypt(stored))) == SECRET


def test_secrets_stored_plain_are_read_after_encryption_is_switched_on() -> None:
    assert FernetCipher([NEW]).decrypt(PlainCipher().encrypt(SECRET)) == SECRET


def test_without_its_key_an_encrypted_secret_is_an_error_that_says_so() -> None:
    stored = FernetCipher([OLD]).encrypt(SECRET)

    with pytest.raises(InvalidSecret, match="add the one it was stored with") as refused:
        FernetCipher([NEW]).decrypt(stored)
    with pytest.raises(InvalidSecret, match="PROJECTIONS_WEBHOOK_KEYS"):
        PlainCipher().decrypt(stored)
    assert stored[7:] not in str(refused.value)


@pytest.mark.parametrize("stored", ["", SECRET, "other:abc"])
@pytest.mark.parametrize("cipher", [PlainCipher(), FernetCipher([NEW])])
def test_what_nobody_of_us_stored_is_refused_and_not_shown(cipher: Cipher, stored: str) -> None:
    with pytest.raises(InvalidSecret, match="does not know") as refused:
        cipher.decrypt(stored)

    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("token", ["", "x", "é", "A" * 100])
def test_a_damaged_token_is_an_invalid_secret(token: str) -> None:
    with pytest.raises(InvalidSecret, match="cannot be read"):
        FernetCipher([NEW]).decrypt(f"fernet:{token}")


@pytest.mark.parametrize(
    "key", ["tooshort", NEW[:-5], "é" * 44, "!" * 44], ids=["tiny", "cut", "accents", "marks"]
)
def test_a_malformed_key_is_named_by_its_place_and_not_shown(key: str) -> None:
    with pytest.raises(InvalidSecret, match=r"key 2 of the cipher.*generate_key") as refused:
        FernetCipher([NEW, key])

    assert key not in str(refused.value)
    assert refused.value.__cause__ is None


def test_no_text_of_a_cipher_shows_its_keys() -> None:
    cipher = FernetCipher([NEW, OLD])

    assert f"{cipher} {cipher!r}" == "<FernetCipher, keys: 2> <FernetCipher, keys: 2>"


def test_encryption_without_a_key_is_refused() -> None:
    with pytest.raises(InvalidSecret, match="needs a key"):
        FernetCipher([])


def test_the_environment_chooses_the_cipher() -> None:
    stored = FernetCipher([OLD]).encrypt(SECRET)

    encrypting = cipher_from_environment({"PROJECTIONS_WEBHOOK_KEYS": f" {NEW}, {OLD},"})

    assert encrypting.decrypt(stored) == SECRET
    assert FernetCipher([NEW]).decrypt(encrypting.encrypt(SECRET)) == SECRET
    for nothing in ({}, {"PROJECTIONS_WEBHOOK_KEYS": " "}):
        assert isinstance(cipher_from_environment(nothing), PlainCipher)
