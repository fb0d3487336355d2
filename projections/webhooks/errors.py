"""Errors of webhooks; all are a :class:`ProjectionsError`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from pydantic import ValidationError

from journal import ProjectionsError
from journal.database import raised_as
from projections.interests import errors as interests


class InvalidEndpoint(ProjectionsError, ValueError):
    """A URL, header, topic, filter, limit or policy of an endpoint can not be as it is; the message names it."""


class InvalidSecret(ProjectionsError, ValueError):
    """A signing secret is malformed, or can not be read with this cipher. The message never holds the secret."""


class InvalidMessage(ProjectionsError, ValueError):
    """A message that was to be sent can not be as it is; the message of the error names the value."""


class InvalidSchedule(ProjectionsError, ValueError):
    """A cron line, a time zone or a policy of a schedule can not be as it is; the message names the value."""


class UnknownEndpoint(ProjectionsError, LookupError):
    """The tenant has no such endpoint."""


class UnknownDelivery(ProjectionsError, LookupError):
    """The tenant has no such delivery."""


class UnknownSchedule(ProjectionsError, LookupError):
    """The tenant has no such schedule."""


class DeliveryInFlight(ProjectionsError):
    """The delivery is being tried at this moment: wait for its outcome."""


class NotRetriable(ProjectionsError):
    """The delivery can not be tried again: its endpoint is disabled, or its event is gone."""


class WrongState(ProjectionsError):
    """The endpoint is in another state than what is asked is for; the message names both."""


class OutdatedVersion(ProjectionsError):
    """An endpoint or a schedule has another version than the one to change: read it again, and change that."""


class TooMany(ProjectionsError):
    """A tenant has as many endpoints or schedules as it may make."""


FilterTooCostly = interests.FilterTooCostly


class VerificationFailed(ProjectionsError, ValueError):
    """A received webhook is not what the sender signed, or too old: answer it with an error, and do nothing."""


class InvalidPageCursor(ProjectionsError, ValueError):
    """A page's cursor is malformed, of another version, or of other filters, another order or another tenant."""


class CursorVersionError(InvalidPageCursor):
    """A cursor of another version of this library: begin with the first page."""


class InvalidQuery(ProjectionsError, ValueError):
    """A list or a metric was asked for with values that can not be; the message names them."""


class InvalidToken(ProjectionsError, ValueError):
    """A token or a key is too weak to keep anybody out; the message never holds it."""


_MOST_FIELDS = 20
own_errors = partial(
    raised_as,
    {
        "PJ090": InvalidEndpoint,
        "PJ091": UnknownEndpoint,
        "PJ092": UnknownDelivery,
        "PJ093": DeliveryInFlight,
        "PJ094": NotRetriable,
        "PJ095": UnknownSchedule,
        "PJ096": InvalidQuery,
        "PJ097": WrongState,
        "PJ098": TooMany,
        "PJ099": OutdatedVersion,
    },
)
"""Raises what the functions of webhooks raise as the errors of this module."""


@contextmanager
def fields_of(what: str) -> Iterator[None]:
    """
    Raise what pydantic finds wrong with an endpoint as the error of this module.

    Args:
        what: What the fields are of. Their names are told, never their values, which may be secret.

    Raises:
        InvalidEndpoint: A field is unknown, or can not be as it is; the message names twenty of them.
    """
    try:
        yield
    except ValidationError as error:
        found = error.errors(include_input=False)
        wrong = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in found[:_MOST_FIELDS]]
        more = f"; and {len(found) - len(wrong):,} more" if len(found) > len(wrong) else ""
        raise InvalidEndpoint(f"{what} can not be so: {'; '.join(wrong)}{more}") from None
