"""URLs of endpoints: which can be registered, and their one normal form."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from projections.extras import from_extra
from projections.webhooks.addresses import AddressRules
from projections.webhooks.errors import InvalidEndpoint

if TYPE_CHECKING:  # of an extra that only URLs need
    from yarl import URL

LONGEST_URL = 2048
_LONGEST_HOST = 253
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_ALLOW = "it must be allowed, with --allow-address CIDR, or AddressRules(allow=…) in Python"
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")  # https://url.spec.whatwg.org/#ends-in-a-number-checker


def checked_url(text: str, *, allow_http: bool = False, rules: AddressRules) -> str:
    """
    Check and normalise the URL of an endpoint, before it is stored.

    This tells a user early what would never work, in an InvalidValue without what may be secret. It does not make the
    address safe: that is judged at each dial. The normal form has lower case and IDNA in the host, no dot after it,
    percent-encoding and no default port.
    """
    _check_text(text)
    url = _parsed(text)
    _check_scheme(url, allow_http=allow_http)
    if "@" in url.raw_authority or "@" in _authority(text):
        raise InvalidEndpoint("a URL with a user or a password cannot be registered: use a header")
    if "#" in text:
        raise InvalidEndpoint("a URL with a fragment (#...) cannot be registered: it is never sent")
    url = _with_host(url, _checked_host(url, rules))
    _check_port(url, rules)
    if len(str(url)) > LONGEST_URL:
        raise InvalidEndpoint(f"the URL is longer than {LONGEST_URL} characters once it is percent-encoded")
    return str(url)


def _check_text(text: object) -> None:
    if not isinstance(text, str) or not text:
        raise InvalidEndpoint("an endpoint needs a URL, such as https://example.com/hooks")
    if len(text) > LONGEST_URL:
        raise InvalidEndpoint(f"the URL is {len(text)} characters long: at most {LONGEST_URL}")
    if any(character.isspace() or not character.isprintable() or character == "\\" for character in text):
        raise InvalidEndpoint("the URL holds a blank, a backslash or a control character: percent-encode it")


def _parsed(text: str) -> URL:
    with from_extra("webhooks"):
        from yarl import URL  # noqa: PLC0415
    try:
        # What IDNA makes of a host may itself be an address, so it is parsed again.
        return URL(str(URL(text)))
    except ValueError as error:
        raise InvalidEndpoint("the URL cannot be understood: check its host and its port") from error


def _authority(text: str) -> str:
    return re.split(r"[/?#]", text.partition("://")[2], maxsplit=1)[0]


def _check_scheme(url: URL, *, allow_http: bool) -> None:
    if url.scheme == "http" and not allow_http:
        raise InvalidEndpoint(
            "the URL must begin with https://; plain http must be allowed: --allow-http, or allow_http=True in Python"
        )
    if url.scheme not in {"http", "https"}:
        raise InvalidEndpoint(f"the URL must begin with https://, not with {url.scheme[:20]!r}")


def _checked_host(url: URL, rules: AddressRules) -> str:
    host = (url.raw_host or "").lower()
    if not host:
        raise InvalidEndpoint("the URL has no host")
    if ":" in host:
        return _checked_address(host, rules)
    host = host.removesuffix(".")
    labels = host.split(".")
    if len(host) > _LONGEST_HOST or not all(_LABEL.fullmatch(label) for label in labels):
        raise InvalidEndpoint(f"{host[:100]!r} is not the name of a host")
    if _NUMBER.fullmatch(
        labels[-1]
    ):  # also 2130706433, 0x7f.1 and 127.1, which the resolver takes for addresses
        return _checked_address(host, rules)
    if not rules.allows_name(host):
        raise InvalidEndpoint(f"{host!r} is not a public host: {_ALLOW}")
    return host


def _checked_address(host: str, rules: AddressRules) -> str:
    if not rules.allows(host):
        raise InvalidEndpoint(f"{host[:100]!r} is not a public address: {_ALLOW}")
    return host


def _with_host(url: URL, host: str) -> URL:
    return url if url.raw_host == host else url.with_host(host)


def _check_port(url: URL, rules: AddressRules) -> None:
    port = url.port
    if port is None or not rules.allows_port(port):
        raise InvalidEndpoint(f"port {port} is not one that webhooks may be sent to")
