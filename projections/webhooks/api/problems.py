"""Errors over HTTP: application/problem+json (RFC 9457) with a code that stays, and nothing from inside."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from journal import (
    DatabaseError,
    DatabaseUnavailable,
    EventIdConflict,
    InvalidEvent,
    OutOfResources,
    ProjectionsError,
    ReadOnlyDatabase,
)
from projections.extras import from_extra
from projections.webhooks.api.json_text import write_json
from projections.webhooks.errors import InvalidEndpoint, InvalidSchedule

with from_extra("webhooks"):
    from starlette.responses import Response

_LOG = logging.getLogger("projections.webhooks.api")

_CANCELLED = "57014"
_BAD_VALUE = "22"
_AGAIN = ("40", "55P03")  # a deadlock or the like, or a lock that was not had in time
_PASSING = (DatabaseUnavailable, OutOfResources, ReadOnlyDatabase)
_INTERNAL = "the request failed; the server's log says why, under its id"
_MOST_FIELDS = 20
_LONGEST_FIELD = 200
_MOST_ERRORS = 500
"""To be told one by one takes longer than to find them."""


class FieldProblem(BaseModel):
    """What is wrong with one field."""

    field: str
    """Its name, with dots into what is nested."""
    message: str


class ProblemBody(BaseModel):
    """Why a request was not followed."""

    title: str
    status: int
    code: str
    """For programs: it stays the same, whatever the words are."""
    detail: str
    """For people."""
    request_id: str
    """Also in the header x-request-id, and in the server's log."""
    errors: tuple[FieldProblem, ...] = Field(default=(), max_length=_MOST_FIELDS)


@dataclass(eq=False)
class Problem(Exception):
    """A request that is not followed."""

    status: int
    code: str
    """What programs tell it by."""
    detail: str
    errors: Sequence[FieldProblem] = ()
    headers: Mapping[str, str] | None = None


# Their messages are written for who asks. Of those that name a value, it is the value of the request.
_STATUSES = {
    "delivery_in_flight": 409,
    "filter_too_costly": 400,
    "not_retriable": 400,
    "outdated_version": 412,
    "unknown_delivery": 404,
    "unknown_endpoint": 404,
    "unknown_message": 404,
    "unknown_schedule": 404,
    "wrong_state": 409,
}
"""Those of other codes are 422."""


def problem_of(error: Exception, request_id: str) -> Problem:
    """What an error is over HTTP. What is the server's own fault is logged here, and the answer says no more."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, EventIdConflict):
        return Problem(409, "id_conflict", "a message with this id was sent before, with other content")
    if isinstance(database := _database_error(error), DatabaseError):
        return _of_database(database, request_id)
    if isinstance(error, ProjectionsError) and (code := _code_of(error)):
        return Problem(_STATUSES.get(code, 422), code, _said(error))
    _LOG.error("request %s failed", request_id, exc_info=error)
    return Problem(
        500, "internal_error", "the request failed; the server's log says why, under this request id"
    )


def _code_of(error: ProjectionsError) -> str | None:
    return "invalid_message" if isinstance(error, InvalidEvent) else getattr(error, "code", None)


def problem_response(problem: Problem, request_id: str) -> Response:
    """The answer that tells a problem."""
    body = ProblemBody(
        title=HTTPStatus(problem.status).phrase,
        status=problem.status,
        code=problem.code,
        detail=problem.detail,
        request_id=request_id,
        errors=tuple(problem.errors[:_MOST_FIELDS]),
    )
    return Response(write_json(body), problem.status, problem.headers, media_type="application/problem+json")


def unfit(error: ValidationError, where: str, status: int = 422) -> Problem:
    """The problem of a body or a query that does not fit its model; the values themselves are not in it."""
    if (number := error.error_count()) > _MOST_ERRORS:
        errors = [FieldProblem(field="", message=f"{number:,} values are invalid, too many to name them")]
    else:
        errors = [
            FieldProblem(field=_path(each["loc"]), message=each["msg"][:_LONGEST_FIELD])
            for each in error.errors(include_input=False, include_url=False, include_context=False)
        ]
    return Problem(status, f"invalid_{where}", f"the {where} is invalid: see errors", errors)


def _path(location: Sequence[Any]) -> str:
    return ".".join(map(str, location))[:_LONGEST_FIELD]


def _database_error(error: Exception) -> DatabaseError | None:
    """Also behind an error of our own: a metric that took too long says so with advice, but it is the database's."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, DatabaseError) and (cause is error or cause.sqlstate == _CANCELLED):
            return cause
        cause = cause.__cause__
    return None


def _of_database(error: DatabaseError, request_id: str) -> Problem:
    state = error.sqlstate or ""
    if state == _CANCELLED:
        return _try_later("too_slow", "the database took too long: ask for less, or later")
    if state.startswith(_BAD_VALUE):
        return Problem(400, "invalid_value", "a value cannot be stored or compared by the database")
    _LOG.error("the database failed request %s", request_id, exc_info=error)
    if isinstance(error, _PASSING) or state.startswith(_AGAIN):
        return _try_later("database_unavailable", "the database does not answer; try again")
    return Problem(500, "internal_error", _INTERNAL)


def _try_later(code: str, detail: str) -> Problem:
    return Problem(503, code, detail, headers={"retry-after": "5"})


def _said(error: ProjectionsError) -> str:
    """What the database's own checks say has names of tables in it."""
    if isinstance(error, InvalidEndpoint | InvalidSchedule) and hasattr(error.__cause__, "sqlstate"):
        return "a value cannot be stored"
    return str(error)
