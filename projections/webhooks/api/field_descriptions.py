"""What the names of the API mean, each with an example: one name means one thing wherever it stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Word(NamedTuple):
    """A name of a field or a parameter."""

    meaning: str
    """Where its model says nothing else."""
    example: Any
    other: Any = None
    """An example of another type, where there are two."""


_ENDPOINT = "ep_0f3a6c1e9b5d4f7a8c2b1d0e9f8a7b6c"
_EVENT = "01890a5d-ac96-774b-bcce-b302099a8057"
_TIME = "2026-01-01T12:00:00Z"
_CURSOR = "a page's own"

TAGS: Mapping[str, str] = {
    "endpoints": "Where webhooks of a tenant go, which of them, and how.",
    "topics": "What messages can be about.",
    "messages": "What is sent.",
    "schedules": "Messages that are sent again and again, at the times of a cron line.",
    "deliveries": "One event for one endpoint, and where it stands; dead letters are those that could not be made.",
    "log": "Events that were for endpoints, and every attempt to deliver them.",
    "metrics": "Counts, rates and shares of errors of the log.",
}

WORDS: Mapping[str, Word] = {
    "attempt_id": Word("The attempt's id.", "att_01890a5dac96774bbcceb302099a8057"),
    "attempt_number": Word("Which attempt it is of its delivery: 1 for the first.", 1),
    "attempts": Word("Used up, the one on its way included.", 1),
    "blocked_until": Word("Nothing is sent to it before; null: it is not held back.", _TIME),
    "breaker_pause": Word("The pause of an open circuit.", {"first": 30, "longest": 600, "jitter": 0.2}),
    "certificate": Word("The client certificate; null: none.", None),
    "client_id": Word("Who asks for access tokens.", "webhooks-of-acme"),
    "client_secret": Word("What it asks with.", "..."),
    "code": Word("For programs: an HTTP status, or a word that stays the same.", "500"),
    "created_at": Word("When it was made.", _TIME),
    "cron": Word("When: minute, hour, day of the month, month, day of the week.", "0 5 * * *"),
    "data": Word("What is sent, or the rows of a page.", {"minutes": 12}),
    "data_schema": Word("The JSON Schema of data.", {"type": "object"}),
    "dead": Word("How many deliveries were given up, and are kept.", 0),
    "description": Word("The tenant's own words about it.", "billing"),
    "detail": Word("What is wrong, for people.", "there is no such endpoint"),
    "dimensions": Word("By which values rows are distinguished.", {"topic": "flight.delayed"}, "topic"),
    "dir": Word("The newest first (desc), or the oldest (asc).", "desc"),
    "disable_after": Word("Seconds of nothing but failures that disable it; null: however many.", 432000),
    "dropped": Word("How many.", 3),
    "eligible_for_retry": Word("Whether it is tried again when it fails.", True),
    "endpoint": Word("The endpoint.", None),
    "endpoint_id": Word("The endpoint's id.", _ENDPOINT),
    "endpoint_ids": Word("Endpoints' ids.", [_ENDPOINT]),
    "endpoint_type": Word("What kind of endpoint it was.", "webhook"),
    "erased": Word("Whether its payload was erased.", False),
    "erased_at": Word("When its data were erased; null: they were not.", _TIME),
    "error": Word("What went wrong.", "the tenant has no such endpoint"),
    "errors": Word("Which fields are wrong, the first of them.", []),
    "event": Word("The event.", None),
    "event_id": Word("The event's id: the webhook-id that receivers see.", _EVENT),
    "event_time": Word("When the event was.", _TIME),
    "expired": Word("How many deliveries have expired since it was made.", 0),
    "expires_at": Word("Not attempted from then on; null: whenever it is.", _TIME),
    "failed": Word("How many attempts failed.", 0),
    "failing_since": Word("When the first attempt failed after the last that succeeded.", _TIME),
    "field": Word("Its name, with dots into what is nested.", "policy.timeout"),
    "filter": Word("Which events of its topics; null: all of them.", {"data": {"minutes": {"$gte": 60}}}),
    "fingerprint": Word("What a secret can be told by.", "b5bb9d8014a0f9b1"),
    "finished_at": Word("When it was over; null: it is not.", _TIME),
    "first": Word("Seconds of the first pause.", 30),
    "grace": Word("Seconds.", 86400),
    "granularity": Word("The length of a bucket of time.", "1h"),
    "header_names": Word("Of headers that are sent with each request; not their values.", ["authorization"]),
    "headers": Word("Sent with each request.", {"x-source": "flights"}),
    "id": Word("Makes it idempotent.", "delay-1"),
    "in_flight": Word("How many deliveries are on their way.", 0),
    "include": Word("What else to show, which costs more.", ["data"]),
    "jitter": Word("The share of a pause that is random.", 0.2),
    "lag": Word("Seconds.", 0.5),
    "last_at": Word("When it was sent last.", _TIME),
    "last_code": Word("Of the last attempt: an HTTP status, or what went wrong.", "500"),
    "limit": Word("How many.", 100),
    "longest": Word("Seconds of the longest pause.", 600),
    "manual": Word("Whether somebody asked for it.", False),
    "max_retry_after": Word("Seconds that a receiver can make the sender wait by Retry-After.", 86400),
    "measures": Word("What is counted.", ["count"], {"count": 12}),
    "median": Word("Seconds.", 0.05),
    "message": Word("What is wrong with it.", "Field required"),
    "messages": Word("How many.", 3),
    "metadata": Word("Labels for filters and for the log; they are not sent.", {"plane": "N14228"}),
    "method": Word("How the client identifies itself: basic or post.", "basic"),
    "minutes": Word("Attempts of the last minutes count: 1 to 10,080.", 60),
    "missed": Word("Of ticks that nobody was there for: none is sent (skip), the last (one), or all.", "one"),
    "name": Word("The tenant's own for it.", "nightly report"),
    "next": Word("The place where the next page begins, as a page said it; null: this is the last.", _CURSOR),
    "next_at": Word("When it is tried next, if it is pending.", _TIME),
    "not_after": Word("It is good until then.", _TIME),
    "oauth": Word("The client of OAuth; null: none.", None),
    "pem": Word("A certificate with its key.", "-----BEGIN CERTIFICATE-----..."),
    "not_before": Word("Not to be sent earlier.", _TIME),
    "on_dead": Word(
        "After a dead letter, send the next delivery of its order (skip), or hold it (block).", "skip"
    ),
    "order_by": Word("By what the page is in order.", "time"),
    "order_key": Word("What it is in order with.", "N14228"),
    "ordering": Word("What is sent in order: nothing, messages with the same key, or all.", "none"),
    "paused": Word("Whether nothing is sent until it is resumed.", False),
    "policy": Word("When to try again, and when to stop.", {"schedule": [5, 300, 1800], "timeout": 15}),
    "prev": Word("Where the page before ends, as a page said it; null: this is the first.", _CURSOR),
    "public_key": Word("What receivers verify with.", "whpk_..."),
    "rate_limit": Word("Requests in a second; null: as many as there are.", 10),
    "reason": Word("Why, for who looks at it.", "maintenance"),
    "request_id": Word("What the server's log calls the request.", "5f0c6d5d1f4e4c8f9c3b2a1908f7e6d5"),
    "response_data": Word("What the endpoint answered.", "out of order"),
    "retried": Word("How many.", 3),
    "row_limit": Word("How many rows there can be.", 100000),
    "schedule": Word("Seconds of the pauses after each failed attempt; empty: no retries.", [5, 300, 1800]),
    "schedule_id": Word("The schedule's id.", "sch_0f3a6c1e9b5d4f7a8c2b1d0e9f8a7b6c"),
    "scope": Word("What access tokens are for.", "webhooks"),
    "secret": Word("What signatures are verified with.", "whsec_..."),
    "secrets": Word("What its secrets can be told by.", []),
    "signatures": Word("Symmetric (v1), or by a pair of keys (v1a).", "v1"),
    "since": Word("From then on: at or after this time.", _TIME),
    "slowest_percent": Word("Seconds.", 0.9),
    "state": Word("Where it stands.", "active"),
    "states": Word("Where they stand.", ["dead"]),
    "status": Word("How it ended.", "failed", 404),
    "tenant": Word("Whose it is.", "acme"),
    "time": Word("When it was.", _TIME),
    "time_bucket": Word("Where its span of time begins.", _TIME),
    "timeout": Word("Seconds that an attempt may take.", 15),
    "subject": Word("Whom a certificate names.", "CN=webhooks"),
    "token_url": Word("Where access tokens are had.", "https://login.example.com/token"),
    "timezone": Word("In which the line is read.", "Europe/Paris"),
    "title": Word("The status in words.", "Not Found"),
    "took": Word("Seconds.", 0.05),
    "topic": Word("What it is about.", "flight.delayed"),
    "topics": Word("What they are about.", ["flight.delayed"]),
    "traceparent": Word(
        "A span, as W3C Trace Context has it.", f"00-{'0af7651916cd43dd' * 2}-b7ad6b7169203331-01"
    ),
    "until": Word("Before this time, without it.", _TIME),
    "updated_at": Word("When it was changed last.", _TIME),
    "url": Word("Where to POST.", "https://example.com/hooks"),
    "version": Word("Counts its changes: the etag of an answer, the if-match of a change.", 1),
    "when_disabled": Word("Whether events are kept for it while it is disabled.", "keep"),
}
