"""``projections webhooks endpoints``: where webhooks go."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated

import click

from journal import Database
from projections.durations import duration_text
from projections.terminal.command_group import ListGroup
from projections.terminal.commands import Opt, derived
from projections.terminal.confirmation import confirm
from projections.terminal.options import Limit, Next, Tenant, Yes, next_page
from projections.terminal.output import (
    Answer,
    Columns,
    at,
    done,
    facts,
    listing,
    printable,
    short_id,
    shortened,
    values_of,
)
from projections.webhooks.commands.credentials import (
    remove_certificate,
    remove_oauth,
    set_certificate,
    set_oauth,
)
from projections.webhooks.commands.endpoint_settings import Settings
from projections.webhooks.commands.options import (
    Addresses,
    EndpointId,
    left_to_deliverers,
    secret_of,
    whole_endpoint_id,
)
from projections.webhooks.commands.testing import test, verify
from projections.webhooks.encryption import cipher_from_environment
from projections.webhooks.endpoints import ENABLED, Endpoint, Endpoints, EndpointSettings, EndpointState
from projections.webhooks.errors import InvalidEndpoint, InvalidSecret, fields_of
from projections.webhooks.retry_policy import RetryPolicy
from projections.webhooks.signing import Secret, SigningKey, generate_secret, parse_secret

_Reason = Annotated[str | None, Opt("Why, for those who look at it.", metavar="TEXT")]
_SecretFile = Annotated[str | None, Opt("A secret of your own: whsec_..., or whsk_...", metavar="FILE|-")]


@dataclass(frozen=True, slots=True)
class _Allowed(Addresses):
    """Which URLs an endpoint may have."""

    allow_http: Annotated[bool, Opt("Let a URL without TLS through, too.")] = False

    def endpoints(self, database: Database, url: str | None) -> Endpoints:
        """The endpoints of a database, of which one is to go to this URL."""
        if url is not None and url.lower().startswith("http://") and not self.allow_http:
            raise InvalidEndpoint(
                "the URL is without TLS: write https://, or pass --allow-http for development"
            )
        return Endpoints(database, cipher_from_environment(), self.rules, allow_http=self.allow_http)


@click.group(cls=ListGroup)
def endpoints() -> None:
    """
    Say where webhooks of tenants go, and which.

    \b
      projections webhooks endpoints                                  all of them
      projections webhooks endpoints add acme https://example.com/hooks --topic 'flight.*'
      projections webhooks endpoints show ENDPOINT
      projections webhooks endpoints change ENDPOINT --retry 10s,1m,1h --rate-limit 20
      projections webhooks endpoints test ENDPOINT                    one request, and the answer
      projections webhooks endpoints pause ENDPOINT                   keep events, send none; resume goes on
      projections webhooks endpoints rotate-secret ENDPOINT --grace 24h

    Without a command, `list` is run. Of an id the beginning is enough, such as ep_1f0c. An endpoint
    disables itself after many failures (--disable-after, --disable-after-failures), or when it answers 410 Gone;
    `enable` has it sent what was kept.
    """  # noqa: D301 - click reads the escape


@endpoints.command(name="list")
@derived
async def list_(
    database: Database, /, *, tenant: Tenant = None, limit: Limit = 100, cursor: Next = None
) -> Answer:
    """List endpoints in the order of their ids."""
    page = await Endpoints(database).list(tenant, next=cursor, limit=limit)
    last = page[-1].endpoint_id if len(page) == limit else None
    return listing(
        "endpoints", page, _COLUMNS, *next_page(last),
        nothing="there is no endpoint: `projections webhooks endpoints add TENANT URL` makes one",
        values=_values, next=last,
    )  # fmt: skip


@endpoints.command(short_help="Make one; prints its secret, once.")
@derived
async def add(
    database: Database,
    /,
    tenant: str,
    url: str,
    *,
    settings: Settings,
    secret_file: _SecretFile = None,
    ed25519: Annotated[
        bool, Opt("Sign with a key pair, of which the receiver gets the public half alone (v1a).")
    ] = False,
    allowed: _Allowed,
) -> Answer:
    """
    Make an endpoint of a tenant, for events from now on.

    \b
      projections webhooks endpoints add acme https://example.com/hooks
      projections webhooks endpoints add acme https://example.com/hooks --topic flight.delayed \\
          --filter '{"data": {"minutes": {"$gte": 30}}}' --ordering key --retry 5s,1m,10m

    It prints the secret that its requests are signed with, this once: give it to the receiver.
    """  # noqa: D301 - click reads the escape
    secret = _secret(secret_file, ed25519=ed25519)
    with fields_of("an endpoint"):
        wanted = EndpointSettings(url=url, **settings.changes(RetryPolicy()))
    made = await allowed.endpoints(database, url).create(tenant, wanted, secret)
    text = f"endpoint {made.endpoint.endpoint_id} of tenant {printable(tenant)!r} is made"
    return _with_secret(_values(made.endpoint), text, made.secret)


@endpoints.command(short_help="Show all that is known of one.")
@derived
async def show(database: Database, /, endpoint_id: EndpointId) -> Answer:
    """Show all that is known of an endpoint; of its secrets the fingerprints."""
    service, whole = _endpoints(database), await whole_endpoint_id(database, endpoint_id)
    one = await service.get(None, whole)
    try:
        secrets = await service.secrets(None, whole)
    except InvalidSecret as error:
        return facts({**_values(one), "secrets": None}, _facts(one, f"cannot be read here: {error}"))
    values = {**_values(one), "secrets": [each.fingerprint for each in secrets]}
    return facts(values, _facts(one, ", ".join(map(str, secrets))))


@endpoints.command(short_help="Change some of its settings.")
@derived
async def change(
    database: Database,
    /,
    endpoint_id: EndpointId,
    *,
    url: Annotated[str | None, Opt("Where it goes from now on.", metavar="URL")] = None,
    settings: Settings,
    allowed: _Allowed,
) -> Answer:
    """
    Change some settings of an endpoint; those left out stay as they are.

    Topics and headers that are given take the place of all there were; `none` clears a filter, headers or a limit.
    What is on its way is not touched, and later attempts go by the new settings.
    """
    service = allowed.endpoints(database, url)
    old = await service.get(None, await whole_endpoint_id(database, endpoint_id))
    changes = settings.changes(old.policy) | ({} if url is None else {"url": url})
    if not changes:
        raise click.UsageError("nothing to change: pass an option, such as --topic or --retry")
    one = await service.change(None, old.endpoint_id, changes)
    return done(f"endpoint {one.endpoint_id} is changed (version {one.version})", **_values(one))


@endpoints.command("renew-secrets", short_help="Store all secrets again, with the newest key.")
@derived
async def renew_secrets(database: Database, /) -> Answer:
    """
    Store the secrets of all endpoints again, with the first key in PROJECTIONS_WEBHOOK_KEYS.

    \b
    To change the key of the cipher
      1. put the new key behind the old one, for all processes, and restart them: now all can read what it stores
      2. put it in front of the old one, and restart them: now it is what stores
      3. projections webhooks endpoints renew-secrets
      4. drop the old key
    Where there was none, secrets were stored as they are; they are encrypted then.
    """  # noqa: D301 - click reads the escape
    renewed = await _endpoints(database).renew_secrets()
    return done(f"{renewed} secrets are stored again", renewed=renewed)


@endpoints.command(short_help="Send nothing for a while; events are kept.")
@derived
async def pause(database: Database, /, endpoint_id: EndpointId, *, reason: _Reason = None) -> Answer:
    """Send nothing to an endpoint for a while; its events are kept."""
    said = "paused: its events are kept until `resume`"
    return await _set_state(database, endpoint_id, "paused", said, reason, ENABLED)


@endpoints.command(short_help="Let a paused one go on.")
@derived
async def resume(database: Database, /, endpoint_id: EndpointId) -> Answer:
    """Let a paused endpoint go on with what was kept."""
    return await _set_state(database, endpoint_id, "active", "active", expected=ENABLED)


@endpoints.command(short_help="Let one go on that was disabled.")
@derived
async def enable(database: Database, /, endpoint_id: EndpointId) -> Answer:
    """Let an endpoint go on that was disabled, by somebody or by its failures."""
    return await _set_state(database, endpoint_id, "active", "active")


@endpoints.command(short_help="Send nothing until it is enabled.")
@derived
async def disable(database: Database, /, endpoint_id: EndpointId, *, reason: _Reason = None) -> Answer:
    """
    Send nothing to an endpoint until it is enabled.

    Its deliveries are kept, and so are new events for it unless it was made with --when-disabled discard.
    """
    return await _set_state(database, endpoint_id, "disabled", "disabled", reason)


@endpoints.command(short_help="Remove it with what is to be sent to it.")
@derived
async def remove(database: Database, /, endpoint_id: EndpointId, *, yes: Yes = False) -> Answer:
    """
    Remove an endpoint with its deliveries, sent or not, and its dead letters.

    What was tried stays in the log. To stop for a while, `pause` or `disable` it.
    """
    service = _endpoints(database)
    one = await service.get(None, await whole_endpoint_id(database, endpoint_id))
    where = f"{printable(one.url)} of tenant {printable(one.tenant)!r}"
    confirm(f"Remove endpoint {one.endpoint_id} ({where}) and what is still to be sent to it?", yes=yes)
    await service.remove(None, one.endpoint_id)
    return done(f"endpoint {one.endpoint_id} is removed", endpoint_id=one.endpoint_id, removed=True)


@endpoints.command(name="rotate-secret", short_help="Sign with a new secret; prints it, once.")
@derived
async def rotate_secret(
    database: Database,
    /,
    endpoint_id: EndpointId,
    *,
    grace: Annotated[timedelta, Opt("How long requests are signed with the old secrets, too.")] = timedelta(
        hours=24
    ),
    secret_file: _SecretFile = None,
) -> Answer:
    """
    Sign with a new secret, and print it, this once.

    For as long as --grace says requests are signed with the old secrets as well, so that receivers can change in
    their time. After a leak pass --grace 0s.
    """
    given, whole = _secret(secret_file, ed25519=False), await whole_endpoint_id(database, endpoint_id)
    secret = (await _endpoints(database).rotate_secret(None, whole, given, grace=grace)).secret
    values = {"endpoint_id": whole, "grace_seconds": grace}
    return _with_secret(values, f"endpoint {whole} signs with a new secret", secret)


for command in (set_certificate, remove_certificate, set_oauth, remove_oauth, test, verify):
    endpoints.add_command(command)


def _endpoints(database: Database) -> Endpoints:
    return Endpoints(database, cipher_from_environment())


def _secret(file: str | None, *, ed25519: bool) -> Secret | None:
    text = secret_of(file)
    if text is None:
        return generate_secret("v1a") if ed25519 else None
    if ed25519:
        raise click.UsageError("--ed25519 makes a key: pass it without --secret-file")
    return parse_secret(text)


def _with_secret(values: dict[str, object], text: str, secret: Secret) -> Answer:
    """The answer with a new secret, which is shown this once, and what the receiver needs of it."""
    public = secret.public.reveal() if isinstance(secret, SigningKey) else None
    values = {**values, "secret": secret.reveal(), "public_key": public}
    if public is not None:
        return Answer(values, [text, f"public key  {public}", "The receiver verifies with it."])
    shown = "The receiver verifies with it. It is not shown again."
    return Answer(values, [text, f"secret  {secret.reveal()}", shown])


async def _set_state(
    database: Database,
    endpoint_id: str,
    state: EndpointState,
    said: str,
    reason: str | None = None,
    expected: Collection[EndpointState] | None = None,
) -> Answer:
    whole = await whole_endpoint_id(database, endpoint_id)
    await _endpoints(database).set_state(None, whole, state, reason, expected=expected)
    answer = done(f"endpoint {whole} is {said}", endpoint_id=whole, state=state)
    return await left_to_deliverers(database, answer) if state == "active" else answer


def _values(one: Endpoint) -> dict[str, object]:
    """An endpoint as JSON has it. What its headers hold is not shown: it may be a password."""
    return values_of(one, {"headers"}) | {"header_names": list(one.headers)}


def _url(one: Endpoint) -> str:
    notes = ["verified"] if one.verified else []
    if one.certificate is not None and one.certificate.not_after < datetime.now(UTC) + _SOON:
        notes.append(
            f"certificate expire{'d' if one.certificate.expired else 's'} {at(one.certificate.not_after)}"
        )
    return f"{one.url} ({', '.join(notes)})" if notes else one.url


_SOON = timedelta(days=30)
"""A certificate that expires within it is marked in lists."""

_COLUMNS: Columns = {
    "endpoint": lambda one: short_id(one.endpoint_id), "tenant": "tenant", "state": "state", "url": _url,
    "topics": "topics", "filter": lambda one: None if one.filter is None else shortened(json.dumps(one.filter)),
    "retries": "policy.retries.limit", "description": lambda one: one.description or None,
}  # fmt: skip


def _facts(one: Endpoint, secrets: str) -> dict[str, object]:
    policy = one.policy
    return {
        "endpoint": one.endpoint_id,
        "tenant": one.tenant,
        "url": _url(one),
        "state": one.state if one.reason is None else f"{one.state}: {one.reason}",
        "description": one.description or None,
        "topics": ", ".join(one.topics),
        "filter": None if one.filter is None else json.dumps(one.filter),
        "headers": f"{', '.join(one.headers)} (what they hold is not shown)" if one.headers else None,
        "retries after": _retries(policy),
        "timeout": duration_text(policy.timeout),
        "disabled after": _disabled(policy),
        "circuit": f"opens after {policy.breaker_failures} failures in a row, for "
        f"{duration_text(policy.breaker_pause.first)} up to {duration_text(policy.breaker_pause.longest)}",
        "in flight": f"{one.max_in_flight} at most",
        "rate limit": None if one.rate_limit is None else f"{one.rate_limit:g} a second",
        "ordering": one.ordering
        if one.ordering == "none"
        else f"{one.ordering}, a dead letter: {one.on_dead}",
        "when disabled": f"{one.when_disabled} events",
        "gzip": "yes" if one.gzip else "no",
        "certificate": _certificate(one),
        "oauth": None if one.oauth is None else f"{one.oauth.client_id}, tokens of {one.oauth.token_url}",
        "secrets": secrets,
        "created": at(one.created_at),
        "changed": f"{at(one.updated_at)} (version {one.version})",
    }


def _certificate(one: Endpoint) -> str | None:
    if one.certificate is None:
        return None
    until = at(one.certificate.not_after)
    return f"{one.certificate.subject}, {'EXPIRED' if one.certificate.expired else 'good until'} {until}"


def _retries(policy: RetryPolicy) -> str:
    if not policy.schedule:
        return "never: one attempt"
    span = sum(policy.schedule, timedelta(0))
    pauses = ", ".join(map(duration_text, policy.schedule))
    return f"{pauses} ({policy.retries.attempts} attempts over {span})"


def _disabled(policy: RetryPolicy) -> str:
    limits = []
    if policy.disable_after_failures is not None:
        limits.append(f"{policy.disable_after_failures} failures in a row")
    if policy.disable_after is not None:
        limits.append(f"{duration_text(policy.disable_after)} of failures alone")
    return " or ".join(limits) or "never, but by 410 Gone"
