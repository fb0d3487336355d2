"""``projections webhooks endpoints``: where webhooks go."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Any

import click

from journal import Database
from projections.terminal.connection import confirm
from projections.terminal.durations import Duration
from projections.terminal.group import ListGroup
from projections.terminal.options import dsn_option, echo_done, echo_json, json_option
from projections.terminal.output import printable
from projections.webhooks.ciphers import cipher_from_environment
from projections.webhooks.commands.endpoint_options import changes_of, settings_options
from projections.webhooks.commands.endpoint_view import (
    echo_endpoint,
    echo_endpoints,
    echo_secret,
    endpoint_values,
    public_key,
)
from projections.webhooks.commands.options import (
    address_options,
    rules_of,
    secret_of,
    tenant_option,
)
from projections.webhooks.commands.testing import test, verify
from projections.webhooks.commands.visiting import visit_database, visit_endpoint
from projections.webhooks.endpoints import ENABLED, Endpoint, Endpoints, EndpointSettings, EndpointState
from projections.webhooks.errors import InvalidEndpoint, InvalidSecret, fields_of
from projections.webhooks.keys import Secret, generate_secret, parse_secret
from projections.webhooks.verdicts import RetryPolicy

__all__ = ["endpoints"]

_endpoint = click.argument("endpoint_id", metavar="ENDPOINT")
_http_option = click.option("--allow-http", is_flag=True, help="Let a URL without TLS through, too.")
_reason_option = click.option("--reason", metavar="TEXT", help="Kept with it, for those who wonder.")
_secret_options = (
    click.option("--secret-file", metavar="FILE|-", help="A secret of your own: whsec_..., or whsk_..."),
    click.option(
        "--ed25519", is_flag=True,
        help="Sign with a key pair, of which the receiver gets the public half alone (v1a).",
    ),
)  # fmt: skip


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

    Without the name of a command it is `list`. Of an id the beginning is enough, such as ep_1f0c. An endpoint
    disables itself after many failures (--disable-after, --disable-after-failures), or when it answers 410 Gone;
    `enable` has it sent what was kept.
    """  # noqa: D301 - click reads the escape


@endpoints.command(name="list")
@tenant_option
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True)
@click.option("--after", metavar="ENDPOINT", default="", help="Go on after this one.")
@dsn_option
@json_option
def list_(tenant: str | None, limit: int, after: str, dsn: str | None, as_json: bool) -> None:
    """List endpoints in the order of their ids."""
    page = visit_database(dsn, lambda database: Endpoints(database).list(tenant, after=after, limit=limit))
    last = page[-1].endpoint_id if len(page) == limit else None
    if as_json:
        echo_json(endpoints=[endpoint_values(one) for one in page], next=last)
    elif page:
        echo_endpoints(page)
        if last is not None:
            click.echo(f"there may be more: --after {last}")
    else:
        click.echo("there is no endpoint: `projections webhooks endpoints add TENANT URL` makes one")


@endpoints.command(short_help="Make one; prints its secret, once.")
@click.argument("tenant")
@click.argument("url")
@settings_options
@_secret_options[0]
@_secret_options[1]
@_http_option
@address_options
@dsn_option
@json_option
def add(  # noqa: PLR0917 - click passes all by name
    tenant: str,
    url: str,
    secret_file: str | None,
    ed25519: bool,
    dsn: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """
    Make an endpoint of a tenant, for events from now on.

    \b
      projections webhooks endpoints add acme https://example.com/hooks
      projections webhooks endpoints add acme https://example.com/hooks --topic flight.delayed \\
          --filter '{"data": {"minutes": {"$gte": 30}}}' --ordering key --retry 5s,1m,10m

    It prints the secret that its requests are signed with, this once: give it to the receiver.
    """  # noqa: D301 - click reads the escape
    secret = _secret(secret_file, ed25519=ed25519)
    guard = _guard(url, options)
    settings = _settings(url, options)
    made = visit_database(dsn, lambda db: _endpoints(db, guard).create(tenant, settings, secret))
    if as_json:
        echo_json(
            **endpoint_values(made.endpoint),
            secret=made.secret.reveal(),
            public_key=public_key(made.secret),
        )
        return
    click.echo(f"endpoint {made.endpoint.endpoint_id} of tenant {printable(tenant)!r} is made")
    echo_secret(made.secret)


@endpoints.command(short_help="Show all that is known of one.")
@_endpoint
@dsn_option
@json_option
def show(endpoint_id: str, dsn: str | None, as_json: bool) -> None:
    """Show all that is known of an endpoint; of its secrets the fingerprints."""

    async def work(database: Database, whole: str) -> tuple[Endpoint, list[Secret] | str]:
        service = _endpoints(database)
        one = await service.get(None, whole)
        try:
            return one, list(await service.secrets(None, whole))
        except InvalidSecret as error:
            return one, f"can not be read here: {error}"

    one, secrets = visit_endpoint(dsn, endpoint_id, work)
    if as_json:
        readable = not isinstance(secrets, str)
        fingerprints = [s.fingerprint for s in secrets if isinstance(s, Secret)] if readable else None
        echo_json(**endpoint_values(one), secrets=fingerprints)
    else:
        echo_endpoint(one, secrets)


@endpoints.command(short_help="Change some of its settings.")
@_endpoint
@click.option("--url", metavar="URL", help="Where it goes from now on.")
@settings_options
@_http_option
@address_options
@dsn_option
@json_option
def change(endpoint_id: str, dsn: str | None, as_json: bool, **options: Any) -> None:
    """
    Change some settings of an endpoint; those left out stay as they are.

    Topics and headers that are given take the place of all there were; `none` clears a filter, headers or a limit.
    What is on its way is not touched, and later attempts go by the new settings.
    """
    guard = _guard(options["url"], options)

    async def work(database: Database, whole: str) -> Endpoint:
        old = await _endpoints(database).get(None, whole)
        changes = changes_of(options, old.policy)
        if not changes:
            raise click.UsageError("nothing to change: pass an option, such as --topic or --retry")
        return await _endpoints(database, guard).change(None, whole, changes)

    one = visit_endpoint(dsn, endpoint_id, work)
    if as_json:
        echo_json(**endpoint_values(one))
    else:
        click.echo(f"endpoint {one.endpoint_id} is changed (version {one.version})")


@endpoints.command("renew-secrets", short_help="Store all secrets anew, with the newest key.")
@dsn_option
@json_option
def renew_secrets(dsn: str | None, as_json: bool) -> None:
    """
    Store the secrets of all endpoints anew, with the first key in PROJECTIONS_WEBHOOK_KEYS.

    \b
    To change the key of the cipher
      1. put the new key behind the old one, for all processes, and restart them: now all can read what it stores
      2. put it in front of the old one, and restart them: now it is what stores
      3. projections webhooks endpoints renew-secrets
      4. drop the old key
    Where there was none, secrets were stored as they are; they are encrypted then.
    """  # noqa: D301 - click reads the escape

    async def work(database: Database) -> int:
        return await _endpoints(database).renew_secrets()

    renewed = visit_database(dsn, work)
    echo_done(f"{renewed} secrets are stored again", as_json=as_json, renewed=renewed)


@endpoints.command(short_help="Send nothing for a while; events are kept.")
@_endpoint
@_reason_option
@dsn_option
@json_option
def pause(endpoint_id: str, reason: str | None, dsn: str | None, as_json: bool) -> None:
    """Send nothing to an endpoint for a while; its events are kept."""
    one = _set_state(dsn, endpoint_id, "paused", reason, ENABLED)
    echo_done(
        f"endpoint {one.endpoint_id} is paused: its events are kept until `resume`",
        as_json=as_json,
        endpoint_id=one.endpoint_id,
        state="paused",
    )


@endpoints.command(short_help="Let a paused one go on.")
@_endpoint
@dsn_option
@json_option
def resume(endpoint_id: str, dsn: str | None, as_json: bool) -> None:
    """Let a paused endpoint go on with what was kept."""
    one = _set_state(dsn, endpoint_id, "active", None, ENABLED)
    echo_done(
        f"endpoint {one.endpoint_id} is active", as_json=as_json, endpoint_id=one.endpoint_id, state="active"
    )


@endpoints.command(short_help="Let one go on that was disabled.")
@_endpoint
@dsn_option
@json_option
def enable(endpoint_id: str, dsn: str | None, as_json: bool) -> None:
    """Let an endpoint go on that was disabled, by somebody or by its failures."""
    one = _set_state(dsn, endpoint_id, "active", None)
    echo_done(
        f"endpoint {one.endpoint_id} is active", as_json=as_json, endpoint_id=one.endpoint_id, state="active"
    )


@endpoints.command(short_help="Send nothing until it is enabled.")
@_endpoint
@_reason_option
@dsn_option
@json_option
def disable(endpoint_id: str, reason: str | None, dsn: str | None, as_json: bool) -> None:
    """
    Send nothing to an endpoint until it is enabled.

    Its deliveries are kept, and so are new events for it unless it was made with --when-disabled discard.
    """
    one = _set_state(dsn, endpoint_id, "disabled", reason)
    echo_done(
        f"endpoint {one.endpoint_id} is disabled",
        as_json=as_json,
        endpoint_id=one.endpoint_id,
        state="disabled",
    )


@endpoints.command(short_help="Remove it with what is to be sent to it.")
@_endpoint
@click.option("--yes", is_flag=True, help="Do not ask.")
@dsn_option
@json_option
def remove(endpoint_id: str, yes: bool, dsn: str | None, as_json: bool) -> None:
    """
    Remove an endpoint with its deliveries, sent or not, and its dead letters.

    What was tried stays in the log. To stop for a while, `pause` or `disable` it.
    """
    one = visit_endpoint(dsn, endpoint_id, lambda db, whole: _endpoints(db).get(None, whole))
    where = f"{printable(one.url)} of tenant {printable(one.tenant)!r}"
    confirm(f"Remove endpoint {one.endpoint_id} ({where}) and what is still to be sent to it?", yes=yes)
    visit_database(dsn, lambda db: _endpoints(db).remove(None, one.endpoint_id))
    echo_done(
        f"endpoint {one.endpoint_id} is removed", as_json=as_json, endpoint_id=one.endpoint_id, removed=True
    )


@endpoints.command(name="rotate-secret", short_help="Sign with a new secret; prints it, once.")
@_endpoint
@click.option(
    "--grace", type=Duration(), default="24h", show_default=True, metavar="30m|24h|7d",
    help="How long requests are signed with the old secrets, too.",
)  # fmt: skip
@_secret_options[0]
@dsn_option
@json_option
def rotate_secret(
    endpoint_id: str, grace: timedelta, secret_file: str | None, dsn: str | None, as_json: bool
) -> None:
    """
    Sign with a new secret, and print it, this once.

    For as long as --grace says requests are signed with the old secrets as well, so that receivers can change in
    their time. After a leak pass --grace 0s.
    """
    given = _secret(secret_file, ed25519=False)
    secret = visit_endpoint(
        dsn, endpoint_id, lambda db, whole: _endpoints(db).rotate_secret(None, whole, given, grace=grace)
    ).secret
    if as_json:
        echo_json(
            endpoint_id=endpoint_id, secret=secret.reveal(), public_key=public_key(secret),
            grace_seconds=grace.total_seconds(),
        )  # fmt: skip
        return
    click.echo(f"endpoint {endpoint_id} signs with a new secret")
    echo_secret(secret)


endpoints.add_command(test)
endpoints.add_command(verify)


def _guard(url: str | None, options: dict[str, Any]) -> dict[str, Any]:
    """Take what says which URLs may be, leaving the settings."""
    names = ("allow_addresses", "deny_addresses", "only_ports")
    rules = rules_of(*(options.pop(name) for name in names))
    allow_http = options.pop("allow_http")
    if url is not None and url.lower().startswith("http://") and not allow_http:
        raise InvalidEndpoint("the URL is without TLS: write https://, or pass --allow-http for development")
    return {"rules": rules, "allow_http": allow_http}


def _endpoints(database: Database, guard: dict[str, Any] | None = None) -> Endpoints:
    return Endpoints(database, cipher_from_environment(), **guard or {})


def _settings(url: str, options: dict[str, Any]) -> EndpointSettings:
    with fields_of("an endpoint"):
        return EndpointSettings(url=url, **changes_of(options, RetryPolicy()))


def _secret(file: str | None, *, ed25519: bool) -> Secret | None:
    text = secret_of(file)
    if text is None:
        return generate_secret("v1a") if ed25519 else None
    if ed25519:
        raise click.UsageError("--ed25519 makes a key: pass it without --secret-file")
    return parse_secret(text)


def _set_state(
    dsn: str | None,
    endpoint_id: str,
    state: EndpointState,
    reason: str | None,
    expected: Collection[EndpointState] | None = None,
) -> Endpoint:
    async def work(database: Database, whole: str) -> Endpoint:
        return await _endpoints(database).set_state(None, whole, state, reason, expected=expected)

    return visit_endpoint(dsn, endpoint_id, work)
