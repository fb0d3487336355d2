"""What operations on endpoints take and show."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from projections.webhooks.api.operations import (
    Body,
    Page,
    PageQuery,
    Query,
    Tenant,
    View,
    Word,
    without_defaults,
)
from projections.webhooks.endpoints import Endpoint, EndpointSettings
from projections.webhooks.stats import EndpointStats
from projections.webhooks.tenant_rows import Json

__all__ = [
    "CreatedEndpoint",
    "EndpointChanges",
    "EndpointPage",
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
]

E = TypeVar("E", bound=BaseModel)

# A public key signs nothing.
OwnSecret = Annotated[str, Field(max_length=200, pattern="^(whsec|whsk)_")]


class SecretView(View):
    """What a secret can be told by; itself it is shown once, when it is made."""

    signatures: Literal["v1", "v1a"]
    fingerprint: str
    public_key: str | None = None
    """What receivers verify v1a signatures with."""


class EndpointView(Endpoint):
    """An endpoint. The values of its headers are not shown: they may be secret."""

    model_config = ConfigDict(extra="ignore", json_schema_serialization_defaults_required=True)

    headers: dict[str, str] = Field(default={}, exclude=True)
    header_names: tuple[str, ...]

    @classmethod
    def of(cls, endpoint: Endpoint, **more: Any) -> Self:
        """What is shown of an endpoint, and more."""
        return cls.model_validate(vars(endpoint) | {"header_names": tuple(endpoint.headers)} | more)


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


class EndpointPage(Page[EndpointView]):
    """Some endpoints, in the order of their ids."""


class StatsPage(Page[EndpointStats]):
    """How some endpoints fare."""


class OneStatsQuery(Query):
    """Over which time attempts count."""

    minutes: Annotated[int, Field(ge=1, le=10_080)] = 60


class StatsQuery(PageQuery, OneStatsQuery):
    """Over which time attempts count."""


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
