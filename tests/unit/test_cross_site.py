from __future__ import annotations

import pytest

from projections.http.cross_site import foreign

HOST, JSON = {"host": "127.0.0.1:8760"}, {"content-type": "application/json; charset=utf-8"}


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param(JSON, id="a program's"),
        pytest.param({"idempotency-key": "a"}, id="a program's without a body"),
        pytest.param(
            JSON | {"origin": "http://127.0.0.1:8760", "sec-fetch-site": "same-origin"}, id="a page's"
        ),
        pytest.param(JSON | {"origin": "https://app.example.com"}, id="a page's behind a proxy"),
        pytest.param(JSON | {"sec-fetch-site": "none"}, id="the user's own"),
    ],
)
def test_what_is_this_site_s_own_is_let_through(headers: dict[str, str]) -> None:
    assert foreign("POST", HOST | headers, ["https://app.example.com/"]) is None


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_who_reads_is_not_asked(method: str) -> None:
    assert foreign(method, HOST | {"origin": "https://evil.example", "sec-fetch-site": "cross-site"}) is None


@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "http://127.0.0.1"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://["}, 403),
        ({"origin": ""}, 403),
        ({"origin": "null", "host": ""}, 403),
    ],
)
def test_what_another_site_makes_a_browser_send_is_refused(
    method: str, headers: dict[str, str], status: int
) -> None:
    found = foreign(method, HOST | JSON | headers)
    assert found is not None
    assert found.status == status


@pytest.mark.parametrize(
    "kind", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]
)
def test_what_a_form_of_a_browser_without_these_headers_sends_is_refused(kind: str | None) -> None:
    found = foreign("POST", HOST | ({} if kind is None else {"content-type": kind}))
    assert found is not None
    assert found.status == 415
