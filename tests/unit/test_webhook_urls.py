"""URLs of endpoints: which are refused, and how the others are written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.webhooks.addresses import AddressRules
from projections.webhooks.errors import InvalidEndpoint
from projections.webhooks.urls import checked_url

PUBLIC = AddressRules()
LOCAL = AddressRules(allow=("127.0.0.0/8",))

REFUSED = {
    "": "needs a URL",
    "hooks.example": "begin with https://",
    "//hooks.example/": "begin with https://",
    "http://hooks.example/": "plain http",
    "file:///etc/passwd": "'file'",
    "gopher://hooks.example/": "'gopher'",
    "ws://hooks.example/": "'ws'",
    "https:///hooks": "no host",
    "https://user:secret@hooks.example/": "user or a password",
    "https://@hooks.example/": "user or a password",
    "https://hooks.example:443@evil.example/": "user or a password",
    "https://hooks.example/#part": "fragment",
    "https://hooks.example/#": "fragment",
    "https://hooks.example/a b": "blank",
    "https://hooks.example/\r\nX: y": "blank",
    "https://hooks.example/\0": "blank",
    "https://hooks.example\\@evil.example/": "backslash",
    "https://hooks.example/\u202e": "blank",
    "https://hooks.example:0/": "port 0",
    "https://hooks.example:65536/": "check its host and its port",
    "https://hooks.example:22/": "port 22",
    "https://hooks.example:5432/": "port 5432",
    "https://hooks..example/": "not the name of a host",
    "https://hooks.example../": "not the name of a host",
    "https://hooks.example%2f.evil.example/": "not the name of a host",
    f"https://{'a' * 64}.example/": "not the name of a host",
    "https://[::1": "check its host",
    "https://127.0.0.1/": "not a public address",
    "https://127.0.0.1./": "not a public address",
    "https://10.0.0.1:8443/": "not a public address",
    "https://169.254.169.254/latest/": "not a public address",
    "https://[::1]/": "not a public address",
    "https://[::ffff:127.0.0.1]/": "not a public address",
    "https://[64:ff9b::7f00:1]/": "not a public address",
    "https://[2002:7f00:1::]/": "not a public address",
    "https://[fe80::1%25eth0]/": "not a public address",
    "https://2130706433/": "not a public address",
    "https://0x7f000001/": "not a public address",
    "https://0x7f.1/": "not a public address",
    "https://127.1/": "not a public address",
    "https://0177.0.0.1/": "not a public address",
    "https://\uff11\uff12\uff17.0.0.1/": "not a public address",
    "https://127\u30020\u30020\u30021/": "not a public address",
    "https://localhost/": "not a public host",
    "https://hooks.localhost./": "not a public host",
    "https://metadata.google.internal/": "not a public host",
}
NORMAL = {
    "https://hooks.example": "https://hooks.example",
    "HTTPS://Hooks.EXAMPLE:443/A": "https://hooks.example/A",
    "https://hooks.example./a": "https://hooks.example/a",
    "https://hooks.example:8443/a": "https://hooks.example:8443/a",
    "https://bücher.example/ü?q=ü": "https://xn--bcher-kva.example/%C3%BC?q=%C3%BC",
    "https://\u0435\u0445ample.com/": "https://xn--ample-ywe6i.com/",  # the first two letters are Cyrillic
    "https://\uff48\uff4f\uff4f\uff4b\uff53.example/": "https://hooks.example/",  # full width
    "https://hooks.example/a%0d%0ab": "https://hooks.example/a%0D%0Ab",
    "https://hooks.example/?a=1+2&b": "https://hooks.example/?a=1+2&b",
    "https://8.8.8.8/": "https://8.8.8.8/",
    "https://[2606:4700::1111]:8443/": "https://[2606:4700::1111]:8443/",
}


@pytest.mark.parametrize(("text", "why"), REFUSED.items())
def test_url_validation(text: str, why: str) -> None:
    with pytest.raises(InvalidEndpoint, match=why):
        checked_url(text, rules=PUBLIC)


@pytest.mark.parametrize(("text", "normal"), NORMAL.items())
def test_a_url_is_stored_in_one_normal_form(text: str, normal: str) -> None:
    assert checked_url(text, rules=PUBLIC) == normal


def test_2048_characters_are_the_most() -> None:
    longest = "https://hooks.example/".ljust(2048, "a")

    assert checked_url(longest, rules=PUBLIC) == longest
    with pytest.raises(InvalidEndpoint, match="2049 characters"):
        checked_url(longest + "a", rules=PUBLIC)


def test_a_url_that_grows_too_long_when_encoded_is_refused() -> None:
    with pytest.raises(InvalidEndpoint, match="percent-encoded"):
        checked_url("https://hooks.example/" + "ü" * 1000, rules=PUBLIC)


def test_http_and_local_addresses_are_for_who_asks_for_them() -> None:
    for text in ("http://127.0.0.1:8000/", "http://localhost:8000/", "http://[::ffff:127.0.0.1]/"):
        assert checked_url(text, allow_http=True, rules=LOCAL)
        with pytest.raises(InvalidEndpoint):
            checked_url(text, allow_http=True, rules=PUBLIC)


def test_a_refused_url_is_not_repeated_with_its_password() -> None:
    with pytest.raises(InvalidEndpoint) as refused:
        checked_url("https://user:hunter2@hooks.example/?token=s3cret", rules=PUBLIC)

    assert "hunter2" not in str(refused.value)
    assert "s3cret" not in str(refused.value)


@given(st.text(max_size=30), st.text(max_size=30))
def test_any_text_is_refused_or_has_a_normal_form_that_stays(host: str, path: str) -> None:
    try:
        normal = checked_url(f"https://{host}/{path}", rules=PUBLIC)
    except InvalidEndpoint:
        return

    assert checked_url(normal, rules=PUBLIC) == normal
    assert normal.isascii()
    assert normal.isprintable()
    assert " " not in normal
