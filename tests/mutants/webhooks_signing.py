"""Bugs of signatures and secrets: what is signed and verified, rotation, how secrets are kept."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from projections.webhooks import endpoint_credentials, endpoints
from tests.mutants.layers import Pytest
from tests.mutants.mutant import mutant
from tests.mutants.seeding import in_python, in_sql, method

_SIGNING = "projections/webhooks/signing.py"
_REQUEST = "projections/webhooks/signed_request.py"
_CIPHERS = "projections/webhooks/encryption.py"
_CREDENTIALS = "projections/webhooks/credentials.py"
_CONTEXTS = "projections/webhooks/client_tls.py"
_CREDENTIALS_UNIT = "tests/unit/test_webhook_credentials.py"
_CERTIFICATES = "tests/integration/webhooks/wire/test_client_certificates.py"
_UNIT = "tests/unit/test_webhook_signing.py"
_DELIVERY = "tests/integration/webhooks/test_delivery.py"
_SECRETS = "tests/integration/webhooks/test_secrets.py"

in_python(
    "signatures-are-of-a-part-of-the-body",
    "a webhook verifies whose body has got blanks around it on its way",
    f"{_SIGNING}: _content",
    "(message_id.encode(), timestamp.encode(), body)",
    "(message_id.encode(), timestamp.encode(), body.strip())",
    Pytest(f"{_UNIT}::test_what_was_tampered_with_is_refused"),
)
in_python(
    "signatures-are-of-compressed-bytes",
    "where what is sent is compressed, the signature is of the compressed bytes",
    f"{_REQUEST}: signed_request",
    "sign(secrets, message_id, signed_at, body)",
    "sign(secrets, message_id, signed_at, gzip_body(body) if gzip else body)",
    Pytest(f"{_UNIT}::test_no_header_of_an_endpoint_takes_the_place_of_the_signature"),
)
in_python(
    "signatures-are-by-the-newest-secret",
    "while secrets are rotated, nothing is signed with the old one",
    f"{_REQUEST}: outgoing_of",
    "for stored in claimed.secrets]",
    "for stored in claimed.secrets[:1]]",
    Pytest(f"{_DELIVERY}::test_rotation_both_signatures_newest_first_then_expiry_drops_old"),
)
in_python(
    "signatures-are-of-the-time-of-the-event",
    "an attempt is signed as of the time of its event: receivers refuse a late one as too old",
    f"{_REQUEST}: outgoing_of",
    "at=claimed.claimed_at",
    "at=claimed.event_time",
    Pytest(f"{_DELIVERY}::test_retries_have_the_same_id_and_body_and_a_new_timestamp"),
)
in_python(
    "signatures-are-replaced-by-headers",
    "a header of the endpoint's owner replaces the signature",
    f"{_REQUEST}: signed_request",
    "SIGNATURE_HEADER: sign(secrets, message_id, signed_at, body),",
    "SIGNATURE_HEADER: sign(secrets, message_id, signed_at, body), **headers,",
    Pytest(f"{_UNIT}::test_no_header_of_an_endpoint_takes_the_place_of_the_signature"),
)
in_python(
    "old-webhooks-verify",
    "a webhook that somebody has kept, and sends again, verifies however old it is",
    f"{_SIGNING}: verify",
    "abs((now or datetime.now(UTC)) - sent)",
    "sent - (now or datetime.now(UTC))",
    Pytest(f"{_UNIT}::test_five_minutes_to_either_side_are_the_edge"),
)
in_python(
    "signatures-of-any-version-verify",
    "a signature of one version verifies by the secret of another",
    f"{_SIGNING}: _any_verifies",
    "secret.version == version and",
    "",
    Pytest(f"{_UNIT}::test_v1a_ignored_by_v1_secret"),
)
in_python(
    "the-first-of-two-headers-counts",
    "of a signature header that is there twice the first one is taken",
    f"{_SIGNING}: _header",
    "len(found) != 1",
    "not found",
    Pytest(f"{_UNIT}::test_a_header_that_is_there_twice_is_refused"),
)
in_sql(
    "rotation-prolongs-old-secrets",
    "a secret that was to sign no more in an hour signs for a day again, once another one is rotated",
    "functions/webhooks/_rotate_secret_v1.sql",
    "WHERE s.endpoint_id = p_endpoint_id AND (s.expires_at IS NULL OR s.expires_at > clock_timestamp() + p_grace);",
    "WHERE s.endpoint_id = p_endpoint_id;",
    Pytest(f"{_SECRETS}::test_rotating_again_prolongs_no_secret_that_was_to_end_sooner"),
)
in_sql(
    "secrets-sign-after-their-time",
    "deliveries are signed with old secrets after their time, too",
    "functions/webhooks/_claim_deliveries_v1.sql",
    "AND (s.expires_at IS NULL OR s.expires_at > _now)",
    "",
    Pytest(f"{_DELIVERY}::test_rotation_both_signatures_newest_first_then_expiry_drops_old"),
)
in_sql(
    "secrets-pile-up",
    "an endpoint whose secret is rotated often is signed with all of them",
    "functions/webhooks/_rotate_secret_v1.sql",
    "OFFSET 10 LIMIT 1",
    "OFFSET 1000 LIMIT 1",
    Pytest(f"{_SECRETS}::test_an_endpoint_has_ten_secrets_at_most"),
)
in_python(
    "secrets-are-stored-with-the-oldest-key",
    "a new key in front does not encrypt: secrets stay under the one that is to be dropped",
    f"{_CIPHERS}: FernetCipher.__init__",
    "MultiFernet(fernets)",
    "MultiFernet(fernets[::-1])",
    Pytest("tests/unit/test_webhook_ciphers.py::test_a_new_key_in_front_reads_what_the_old_one_stored"),
)
in_python(
    "credentials-keep-their-old-key",
    "secrets are stored with the new key, and client certificates are not: they are lost with the old one",
    "projections/webhooks/endpoint_credentials.py: EndpointCredentials._renew_credentials",
    'self._cipher.encrypt(self._cipher.decrypt(row["secret"]))',
    'row["secret"]',
    Pytest(
        "tests/integration/webhooks/wire/test_client_certificates.py::"
        "test_what_is_stored_is_encrypted_renewed_and_shown_without_the_key"
    ),
)
in_python(
    "secrets-are-renewed-in-part",
    "where one secret cannot be read, those before it are stored with the new key all the same",
    "projections/webhooks/endpoints.py: Endpoints.renew_secrets",
    "session, session.transaction():",
    "session:",
    Pytest(f"{_SECRETS}::test_one_that_can_not_be_read_keeps_all_as_they_are"),
)
in_python(
    "tokens-are-shared-by-tenants",
    "requests of one tenant are sent with the access token of another, whose client has the same name",
    "projections/webhooks/access_tokens.py: _key",
    "[tenant, *client.facts.model_dump().values(), client.secret]",
    "[*client.facts.model_dump().values()]",
    Pytest(
        "tests/integration/webhooks/wire/test_access_tokens.py::test_tenants_and_secrets_have_tokens_of_their_own"
    ),
)
in_python(
    "tokens-are-kept-in-the-log",
    "a receiver that answers with the access token gets it into the log of attempts",
    "projections/webhooks/access_tokens.py: AccessTokens._with",
    'reply._replace(body=reply.body.replace(token.value, "[access token]"))',
    "reply",
    Pytest(
        "tests/integration/webhooks/wire/test_access_tokens.py"
        "::test_a_receiver_that_shows_the_token_back_does_not_get_it_into_the_log"
    ),
)
in_python(
    "token-urls-are-shown-the-certificate",
    "the client certificate of an endpoint is shown to the server of its access tokens",
    "projections/webhooks/access_tokens.py: _request",
    "certificate=None, traceparent=None",
    "traceparent=None",
    Pytest(
        "tests/integration/webhooks/wire/test_client_certificates.py::test_a_url_of_access_tokens_is_not_shown_it"
    ),
)


@mutant(
    "secrets-are-read-by-any-tenant",
    "what an endpoint signs with is read by whoever knows its id",
    "projections/webhooks/endpoints.py: Endpoints.secrets",
    Pytest(f"{_SECRETS}::test_another_tenant_reads_no_secret"),
)
def _secrets_of_others() -> AbstractContextManager[Any]:
    return method(endpoints, "_SECRETS", endpoints._SECRETS.replace("OR e.tenant = $2", "OR TRUE"))


@mutant(
    "credentials-are-read-by-any-tenant",
    "what requests to an endpoint identify themselves with is read by whoever knows its id",
    "projections/webhooks/endpoint_credentials.py: EndpointCredentials.credentials",
    Pytest(f"{_SECRETS}::test_another_tenant_reads_no_secret"),
)
def _credentials_of_others() -> AbstractContextManager[Any]:
    read = endpoint_credentials._READ
    return method(endpoint_credentials, "_READ", read.replace("OR e.tenant = $2", "OR TRUE"))


in_python(
    "client-keys-are-tested-for-primes",
    "a client certificate holds up all tenants of the API for as long as its RSA key takes to be tested for primes",
    f"{_CREDENTIALS}: load_key",
    ", unsafe_skip_rsa_key_validation=True",
    "",
    Pytest(f"{_CREDENTIALS_UNIT}::test_a_key_costs_no_test_of_its_primes"),
)
in_python(
    "client-keys-that-do-not-fit-are-taken",
    "OpenSSL works with an RSA key whose numbers do not fit each other",
    f"{_CREDENTIALS}: _check_rsa",
    "(d % (p - 1), d % (q - 1), 1)",
    "(d % (p - 1), key.dmq1, 1)",
    Pytest(f"{_CREDENTIALS_UNIT}::test_what_cannot_be_one_is_refused_and_not_shown"),
)
in_python(
    "stored-client-keys-have-any-size",
    "a large key that was stored before there was a limit is loaded for each attempt",
    f"{_CREDENTIALS}: load_key",
    "if len(pem) > _LONGEST_KEY:",
    "if False:",
    Pytest(f"{_CREDENTIALS_UNIT}::test_what_cannot_be_one_is_refused_and_not_shown"),
)
in_python(
    "contexts-are-made-for-each-who-waits",
    "a context of TLS is made for each attempt that waits for it, and lost with an attempt that ends before it is made",
    f"{_CONTEXTS}: ClientContexts.of",
    "await self._making.get(digest, lambda: self._made(digest, certificate))",
    "await self._made(digest, certificate)",
    Pytest(f"{_CERTIFICATES}::test_a_context_is_made_once_for_all_who_wait_and_outlives_one_who_does_not"),
)
in_python(
    "shared-work-ends-with-one-who-waits",
    "work that many wait for ends when one of them stops waiting",
    "journal/tasks.py: Shared.get",
    "asyncio.shield(task)",
    "task",
    Pytest(f"{_CERTIFICATES}::test_a_context_is_made_once_for_all_who_wait_and_outlives_one_who_does_not"),
)
in_python(
    "receivers-choose-the-group",
    "a receiver holds up deliveries to all others with DHE in a group of 10,000 bits",
    f"{_CONTEXTS}: _with_small_groups",
    ' if one["kea"] != "kx-dhe"',
    "",
    Pytest(f"{_CERTIFICATES}::test_no_context_lets_the_receiver_choose_a_large_group"),
)
in_python(
    "bodies-are-compressed-for-each-endpoint",
    "a large message is compressed once for each endpoint and attempt",
    "projections/webhooks/compression.py: Compression._body",
    "await self._making.get(digest, lambda: self._made(digest, body))",
    "await self._made(digest, body)",
    Pytest("tests/unit/test_webhook_compression.py"),
)
in_python(
    "bodies-are-compressed-in-the-loop",
    "a large message that is compressed holds up all other deliveries of the process",
    "projections/webhooks/compression.py: Compression._made",
    "await asyncio.to_thread(gzip_body, body)",
    "gzip_body(body)",
    Pytest("tests/unit/test_webhook_compression.py"),
)
