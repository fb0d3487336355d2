"""Bugs of the guard of addresses: where webhooks may go, and that each dial is judged."""

from __future__ import annotations

from tests.mutants.layers import Pytest
from tests.mutants.seeding import in_python

_RULES = "projections/webhooks/addresses.py"
_CONNECTOR = "projections/webhooks/connector.py"
_SENDER = "projections/webhooks/sender.py"
_UNIT = "tests/unit/test_webhook_addresses.py"
_WIRE = "tests/integration/webhooks/wire"

in_python(
    "addresses-in-ipv6-are-others",
    "where all of IPv6 is allowed, credentials of the machine are served at their address in IPv6",
    f"{_RULES}: _parsed",
    "return address.ipv4_mapped or address",
    "return address",
    Pytest(f"{_UNIT}::test_metadata_addresses_are_allowed_by_themselves_alone"),
)
in_python(
    "addresses-behind-gateways-are-not-judged",
    "an address that a gateway leads to is connected to, whatever it is",
    f"{_RULES}: AddressRules.allows",
    "all(self._allows_face(face, named=named) for face in _faces(parsed))",
    "self._allows_face(parsed, named=named)",
    Pytest(f"{_UNIT}::test_a_gateway_that_is_allowed_leads_to_no_denied_address"),
)
in_python(
    "metadata-is-allowed-by-networks",
    "credentials of the machine are served to tenants where a network around their address is allowed",
    f"{_RULES}: AddressRules._allows_face",
    "return network is not None and network.num_addresses == 1",
    "return network is not None",
    Pytest(f"{_UNIT}::test_metadata_addresses_are_allowed_by_themselves_alone"),
)
in_python(
    "metadata-is-allowed-by-names",
    "credentials of the machine are served to tenants where a name is allowed that has their address",
    f"{_RULES}: AddressRules._allows_face",
    "if face in _METADATA:",
    "if face in _METADATA and not named:",
    Pytest(f"{_UNIT}::test_metadata_addresses_are_allowed_by_themselves_alone"),
)
in_python(
    "addresses-allowed-come-before-denied",
    "what is denied is connected to where it is allowed, too",
    f"{_RULES}: AddressRules._allows_face",
    "if _entries(self.deny).network(face) is not None:",
    "if _entries(self.deny).network(face) is not None and not named:",
    Pytest(f"{_UNIT}::test_a_denied_network_is_denied_although_public_or_allowed"),
)
in_python(
    "addresses-names-end-with-a-dot",
    "a name that is denied is let through when it is written with a dot at its end",
    f"{_RULES}: _matches",
    'host.lower().rstrip(".")',
    "host.lower()",
    Pytest(f"{_UNIT}::test_a_denied_name_is_denied_whatever_its_address"),
)
in_python(
    "addresses-are-judged-before-they-are-looked-up",
    "what a name means when it is connected to is not judged",
    f"{_CONNECTOR}: judge_address",
    "not rules.allows(address, host=host)",
    "not (rules.allows_name(host or address) if dial and dial.addresses != [host] else rules.allows(address))",
    Pytest(f"{_WIRE}/test_guard.py::test_ssrf_dns_to_private"),
)
in_python(
    "addresses-through-proxies-are-not-judged",
    "a tunnel of the proxy is asked for to any address",
    f"{_CONNECTOR}: Connector._tunnelled",
    "judge_address(self._rules, address, port)",
    "pass",
    Pytest(f"{_WIRE}/test_egress.py::TestGuard::test_an_address_that_is_not_allowed_is_never_asked_for"),
)
in_python(
    "addresses-ports-are-not-judged",
    "databases and mail servers are connected to",
    f"{_CONNECTOR}: judge_address",
    "not rules.allows_port(port) or",
    "",
    Pytest(f"{_WIRE}/test_guard.py::test_a_denied_port_is_not_dialled"),
)
in_python(
    "redirects-are-followed",
    "an answer leads the request on to another URL, with its headers",
    f"{_SENDER}: _post",
    "allow_redirects=False",
    "allow_redirects=True",
    Pytest(f"{_WIRE}/test_requests.py::test_a_redirect_is_an_answer_and_never_followed"),
)
in_python(
    "proxies-of-the-environment-are-used",
    "requests go through what http_proxy names, which judges nothing",
    f"{_SENDER}: HttpSender._session",
    "trust_env=False",
    "trust_env=True",
    Pytest(f"{_WIRE}/test_requests.py::test_ssrf_env_proxy_ignored"),
)
in_python(
    "lookups-are-kept-for-good",
    "a name that has moved is connected to where it was",
    "projections/webhooks/dns_lookups.py: Lookups.__init__",
    "TTLCache(_MOST_NAMES, kept.total_seconds())",
    'TTLCache(_MOST_NAMES, float("inf"))',
    Pytest(f"{_WIRE}/test_guard.py::test_ssrf_rebinding_second_lookup_private"),
)
in_python(
    "urls-numbers-are-names",
    "an endpoint is registered at 127.1, which is an address",
    "projections/webhooks/urls.py: _checked_host",
    "if _NUMBER.fullmatch(",
    "if len(labels) == 4 and _NUMBER.fullmatch(",
    Pytest("tests/unit/test_webhook_urls.py::test_url_validation"),
)
in_python(
    "urls-of-tokens-are-not-judged",
    "an endpoint has its access tokens from a private address",
    "projections/webhooks/endpoint_credentials.py: EndpointCredentials.set_oauth",
    "url = checked_url(facts.token_url, allow_http=self._allow_http, rules=self._rules)",
    "url = facts.token_url",
    Pytest(f"{_WIRE}/test_access_tokens.py::test_a_token_url_that_may_not_be_asked_is_refused"),
)
in_python(
    "answers-are-taken-for-the-next",
    "what a receiver sends on an idle connection is taken for its answer to the next request",
    f"{_CONNECTOR}: Connector.connect",
    "or not protocol.should_close",
    "or True",
    Pytest(
        f"{_WIRE}/test_requests.py::test_what_comes_on_an_idle_connection_is_not_taken_for_the_next_answer"
    ),
)
