"""Errors of webhooks; all are a :class:`ProjectionsError`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from pydantic import ValidationError

from journal import InvalidValue, NotAllowed, NotFound, ProjectionsError
from journal.database import raised_as


class InvalidEndpoint(InvalidValue):
    """A URL, header, topic, filter, limit or policy of an endpoint cannot be as it is; the message names it."""

    code = "invalid_endpoint"


class InvalidSecret(InvalidValue):
    """A secret, token or key is malformed, too weak, or not the one that was stored with; it is in no message."""

    code = "invalid_secret"


class InvalidMessage(InvalidValue):
    """A message that was to be sent cannot be as it is; the message of the error names the value."""

    code = "invalid_message"


class InvalidSchedule(InvalidValue):
    """A cron line, a time zone or a policy of a schedule cannot be as it is; the message names the value."""

    code = "invalid_schedule"


class InvalidQuery(InvalidValue):
    """A list or a metric was asked for with values that cannot be; the message names them."""

    code = "invalid_query"


class InvalidPageCursor(InvalidValue):
    """A page's cursor is malformed, of another version, or of other filters, another order or another tenant."""

    code = "invalid_cursor"


class InvalidTheme(InvalidValue):
    """A name, a colour or a logo of the page for tenants cannot be as it is; the message says what to change."""

    code = "invalid_theme"


class VerificationFailed(ProjectionsError, ValueError):
    """A received webhook is not what the sender signed, or too old: answer it with an error, and do nothing."""


_MOST_FIELDS = 20
own_errors = partial(
    raised_as,
    {
        "PJ090": InvalidEndpoint,
        "PJ091": partial(NotFound, code="unknown_endpoint"),
        "PJ092": partial(NotFound, code="unknown_delivery"),
        "PJ093": partial(NotAllowed, code="delivery_in_flight"),
        "PJ094": partial(NotAllowed, code="not_retriable"),
        "PJ095": partial(NotFound, code="unknown_schedule"),
        "PJ096": InvalidQuery,
        "PJ097": partial(NotAllowed, code="wrong_state"),
        "PJ098": partial(NotAllowed, code="too_many"),
        "PJ099": partial(NotAllowed, code="outdated_version"),
    },
)
"""Raises what the functions of webhooks raise as the errors of this module."""


@contextmanager
def fields_of(what: str) -> Iterator[None]:
    """
    Raise what pydantic finds wrong with fields of something as an InvalidValue that names twenty of them.

    Never their values, which may be secret.
    """
    try:
        yield
    except ValidationError as error:
        found = error.errors(include_input=False)
        wrong = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in found[:_MOST_FIELDS]]
        more = f"; and {len(found) - len(wrong):,} more" if len(found) > len(wrong) else ""
        raise InvalidEndpoint(f"{what} is invalid: {'; '.join(wrong)}{more}") from None
