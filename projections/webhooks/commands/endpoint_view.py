"""How an endpoint is shown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import timedelta

import click

from projections.durations import duration_text
from projections.webhooks.commands.printing import at, echo_facts, echo_table, short_id, shortened
from projections.webhooks.endpoints import Endpoint
from projections.webhooks.keys import Secret, SigningKey
from projections.webhooks.verdicts import RetryPolicy

__all__ = ["echo_endpoint", "echo_endpoints", "echo_secret", "endpoint_values", "public_key", "retries"]


def echo_endpoints(found: Iterable[Endpoint]) -> None:
    """Print a table, a line for each."""
    columns = ("endpoint", "tenant", "state", "url", "topics", "filter", "retries", "description")
    rows = (
        (
            short_id(one.endpoint_id), one.tenant, one.state, _url(one), ", ".join(one.topics),
            None if one.filter is None else shortened(json.dumps(one.filter)), one.policy.retries.limit,
            one.description or None,
        )
        for one in found
    )  # fmt: skip
    echo_table(columns, rows, {"retries"})


def echo_endpoint(one: Endpoint, secrets: Sequence[Secret] | str) -> None:
    """
    Print all that is known of an endpoint.

    Args:
        one: The endpoint.
        secrets: What it signs with, of which no more than fingerprints is shown; or why they can not be read.
    """
    policy = one.policy
    facts: dict[str, object] = {
        "endpoint": one.endpoint_id,
        "tenant": one.tenant,
        "url": _url(one),
        "state": one.state if one.reason is None else f"{one.state}: {one.reason}",
        "description": one.description or None,
        "topics": ", ".join(one.topics),
        "filter": None if one.filter is None else json.dumps(one.filter),
        "headers": f"{', '.join(one.headers)} (what they hold is not shown)" if one.headers else None,
        "retries after": retries(policy),
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
        "secrets": secrets if isinstance(secrets, str) else ", ".join(map(str, secrets)),
        "created": at(one.created_at),
        "changed": f"{at(one.updated_at)} (version {one.version})",
    }
    echo_facts(facts)


def endpoint_values(one: Endpoint) -> dict[str, object]:
    """An endpoint as JSON has it. What its headers hold is not shown: it may be a password."""
    values = one.model_dump(mode="json", exclude={"headers"})
    return values | {"header_names": list(one.headers)}


def retries(policy: RetryPolicy) -> str:
    """The pauses of a policy, and what they come to."""
    if not policy.schedule:
        return "never: one attempt"
    span = sum(policy.schedule, timedelta(0))
    pauses = ", ".join(map(duration_text, policy.schedule))
    return f"{pauses} ({policy.retries.attempts} attempts over {span})"


def echo_secret(secret: Secret) -> None:
    """Print a new secret, which is shown this once, and what the receiver needs of it."""
    if (public := public_key(secret)) is not None:
        click.echo(f"public key  {public}")
        click.echo("The receiver verifies with it.")
        return
    click.echo(f"secret  {secret.reveal()}")
    click.echo("The receiver verifies with it. It is not shown again.")


def public_key(secret: Secret) -> str | None:
    """What the receiver needs of a key pair; None for a secret that both have."""
    return secret.public.reveal() if isinstance(secret, SigningKey) else None


def _url(one: Endpoint) -> str:
    return f"{one.url} (verified)" if one.verified else one.url


def _disabled(policy: RetryPolicy) -> str:
    limits = []
    if policy.disable_after_failures is not None:
        limits.append(f"{policy.disable_after_failures} failures in a row")
    if policy.disable_after is not None:
        limits.append(f"{duration_text(policy.disable_after)} of failures alone")
    return " or ".join(limits) or "never, but by 410 Gone"
