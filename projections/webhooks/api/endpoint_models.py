"""What operations on endpoints take and show."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from projections.webhooks.api.calls import Body, Json, PageQuery, Query, Tenant, View, Word, without_defaults
from projections.webhooks.endpoints import Endpoint, EndpointSettings, EndpointState
from projections.webhooks.verdicts import RetryPolicy

__all__ = [
    "CreatedEndpoint",
    "EndpointChanges",
    "EndpointPage",
    "EndpointStats",
    "EndpointView",
    "NewEndpointBody",
    "NewSecret",
    "OneEndpoint",
    "OneStatsQuery",
    "RotateBody",
    "SecretView",
    "SentTest",
    "StateBody",
    "StatsPage",
    "StatsQuery",
    "TestBody",
    "Verification",
    "facts_of",
    "view_of",
]

# A public key signs nothing.
OwnSecret = Annotated[str, Field(max_length=200, pattern="^(whsec|whsk)_")]


class SecretView(View):
    """What a secret can be told by; itself it is shown once, when it is made."""

    signatures: Literal["v1", "v1a"]
    fingerprint: str
    public_key: str | None = None
    """What receivers verify v1a signatures with."""


class EndpointView(View):
    """An endpoint. The values of its headers are not shown: they may be secret."""

    endpoint_id: str
    tenant: str
    url: str
    description: str
    topics: tuple[str, ...]
    filter: dict[str, Any] | None
    header_names: tuple[str, ...]
    policy: RetryPolicy
    max_in_flight: int
    rate_limit: float | None
    ordering: Literal["none", "key", "endpoint"]
    on_dead: Literal["skip", "block"]
    when_disabled: Literal["keep", "discard"]
    gzip: bool
    state: EndpointState
    reason: str | None
    version: int
    created_at: datetime
    updated_at: datetime
    verified: bool
    """Whether its URL has answered the challenge."""


class OneEndpoint(EndpointView):
    """An endpoint, and what its secrets can be told by, the newest first."""

    secrets: tuple[SecretView, ...]


class NewSecret(View):
    """A secret that was just made: it is shown this once."""

    secret: str
    """To verify with: whsec_... is shared with the sender, whpk_... is the public half of the sender's key."""
    fingerprint: str
    version: int
    """Of the endpoint, which this has changed."""


class CreatedEndpoint(EndpointView):
    """An endpoint that was just made; its secret is shown this once."""

    secret: str


class EndpointPage(View):
    """Some endpoints, in the order of their ids."""

    data: tuple[EndpointView, ...]
    next: str | None
    """For the query's next: what comes after them."""


class EndpointStats(View):
    """How an endpoint fares. Times in seconds."""

    endpoint_id: str
    state: EndpointState
    pending: int
    waiting: int
    """Behind others, in an order."""
    in_flight: int
    dead: int
    failures: int
    """Attempts that failed, since the last that succeeded."""
    failing_since: datetime | None
    blocked_until: datetime | None
    lag: float
    """Age of the oldest delivery that is to be made."""
    succeeded: int
    failed: int
    median: float | None
    """Of the attempts' durations."""
    slowest_percent: float | None
    """So long took the slowest in a hundred attempts, at least."""
    verified: bool


class StatsPage(View):
    """How some endpoints fare."""

    data: tuple[EndpointStats, ...]
    next: str | None


class StatsQuery(PageQuery):
    """Over which time attempts count."""

    minutes: Annotated[int, Field(ge=1, le=10_080)] = 60


class OneStatsQuery(Query):
    """Over which time attempts count."""

    minutes: Annotated[int, Field(ge=1, le=10_080)] = 60


class NewEndpointBody(EndpointSettings):
    """A new endpoint."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    tenant: Tenant | None = None
    """Whose, for administrators."""
    secret: OwnSecret | None = None
    """To sign with, whsec_... or whsk_...; by default one is made."""
    signatures: Literal["v1", "v1a"] = "v1"
    """What kind of secret is made."""


class EndpointChanges(EndpointSettings):
    """Settings to change; each is replaced as a whole, those left out stay."""

    model_config = ConfigDict(use_attribute_docstrings=True, json_schema_extra=without_defaults)

    url: str = Field(default="", min_length=1, max_length=2048)


class StateBody(Body):
    """Why."""

    reason: Annotated[str, Field(max_length=500)] | None = None


class RotateBody(Body):
    """How to change to a new secret."""

    secret: OwnSecret | None = None
    """The new one; by default one is made, of the kind of the old one."""
    grace: Annotated[float, Field(ge=0, le=2_592_000)] = 86_400
    """Seconds for which the old ones sign too."""


class TestBody(Body):
    """What to send."""

    topic: Word | None = None
    """By default one that the endpoint wants."""
    data: Json = None


class SentTest(View):
    """A message that was sent to one endpoint."""

    event_id: str
    topic: str


class Verification(View):
    """What came of a challenge."""

    endpoint_id: str
    verified: bool
    """Whether it has given the challenge back, now or before."""
    code: str | None
    """What it answered: an HTTP status, or what went wrong; null: it was verified before, and was not asked."""


def view_of(endpoint: Endpoint) -> EndpointView:
    """What is shown of an endpoint."""
    return EndpointView(**facts_of(endpoint))


def facts_of(endpoint: Endpoint) -> dict[str, Any]:
    """The fields of a view."""
    facts = {name: getattr(endpoint, name) for name in EndpointView.model_fields if name != "header_names"}
    return facts | {"header_names": tuple(endpoint.headers)}
