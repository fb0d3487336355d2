"""Who may ask: nobody from elsewhere without the token, and no page of another site."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import httpx
import pytest

from projections.http.addresses import Address, InvalidAddress, parse_address
from projections.http.authentication import Authentication, TokenMissing, read_token

TOKEN = "sesame-öffne-dich"
LOCAL, ANYWHERE = Address("127.0.0.1", 9187), Address("0.0.0.0", 9187)


async def answer(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"secret"})


async def ask(
    protected: Authentication, path: str = "/", headers: Any = None, host: str = "10.1.2.3:9187"
) -> httpx.Response:
    transport = httpx.ASGITransport(app=protected)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        return await client.get(path, headers=[("host", host), *(headers or [])])


def basic(password: str, user: str = "anybody") -> list[tuple[str, str]]:
    return [("authorization", "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode())]


def bearer(token: str) -> list[tuple[bytes, bytes]]:
    return [(b"authorization", b"Bearer " + token.encode())]


@pytest.mark.parametrize(
    ("text", "address", "loopback"),
    [
        ("127.0.0.1:9187", ("127.0.0.1", 9187), True),
        ("127.8.8.8:0", ("127.8.8.8", 0), True),
        ("localhost:80", ("localhost", 80), True),
        ("[::1]:9187", ("::1", 9187), True),
        ("0.0.0.0:9187", ("0.0.0.0", 9187), False),
        ("[::]:9187", ("::", 9187), False),
        ("10.0.0.1:65535", ("10.0.0.1", 65535), False),
        ("worker.example:9187", ("worker.example", 9187), False),
        ("localhost.example:9187", ("localhost.example", 9187), False),
    ],
)
def test_an_address_is_read(text: str, address: tuple[str, int], loopback: bool) -> None:
    found = parse_address(text)

    assert found == address
    assert found.loopback == loopback
    assert str(found) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":9187",
        "9187",
        "127.0.0.1",
        "::1:9187",
        "127.0.0.1:65536",
        "a b:1",
        "[127.0.0.1]:1",
        "[1:2]:1",
        "u@h:1",
        "h:-1",
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidAddress, match="write HOST:PORT"):
        parse_address(text)


def test_an_address_that_others_reach_is_refused_without_a_token() -> None:
    with pytest.raises(
        TokenMissing, match=r"0\.0\.0\.0:9187 can be reached from other machines: set PROJECTIONS_TOKEN"
    ):
        Authentication(answer, ANYWHERE, None)


def test_the_token_comes_from_the_environment_or_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("from-file\n")

    assert read_token({}) is None
    assert read_token({"PROJECTIONS_TOKEN": "from-variable"}) == "from-variable"
    assert read_token({"PROJECTIONS_TOKEN_FILE": str(file)}) == "from-file"
    assert read_token({"PROJECTIONS_TOKEN": "from-variable"}, file) == "from-file"


def test_an_empty_token_and_a_file_that_is_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TokenMissing, match="the token in PROJECTIONS_TOKEN is empty"):
        read_token({"PROJECTIONS_TOKEN": " "})
    with pytest.raises(TokenMissing, match="cannot be read from the file"):
        read_token({}, tmp_path / "nothing")


@pytest.mark.parametrize(
    "headers",
    [
        None,
        bearer("wrong"),
        bearer(""),
        basic("wrong"),
        basic("", user=TOKEN),
        [("authorization", "Basic ???")],
        [("authorization", "Digest x")],
        [*bearer("wrong"), *bearer(TOKEN)],
    ],
)
async def test_without_the_token_nothing_is_answered(headers: Any) -> None:
    response = await ask(Authentication(answer, ANYWHERE, TOKEN), headers=headers)

    assert response.status_code == 401
    assert "secret" not in response.text
    assert response.headers.get_list("www-authenticate") == [
        'Basic realm="projections", charset="UTF-8"',
        "Bearer",
    ]


@pytest.mark.parametrize("headers", [bearer(TOKEN), basic(TOKEN), basic(TOKEN, user="")])
async def test_with_the_token_everything_is_answered(headers: Any) -> None:
    response = await ask(Authentication(answer, ANYWHERE, TOKEN), headers=headers)

    assert response.status_code == 200


async def test_a_token_is_asked_for_on_loopback_too_when_there_is_one() -> None:
    response = await ask(Authentication(answer, LOCAL, TOKEN), host="127.0.0.1:9187")

    assert response.status_code == 401


async def test_an_open_path_needs_no_token() -> None:
    protected = Authentication(answer, ANYWHERE, TOKEN, open_paths={"/livez"})

    assert (await ask(protected, "/livez")).status_code == 200
    assert (await ask(protected, "/livez/")).status_code == 401


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:9187", "127.0.0.1:1", "[::1]:9187", "LOCALHOST:9187"]
)
async def test_loopback_is_answered_under_its_own_names(host: str) -> None:
    assert (await ask(Authentication(answer, LOCAL, None), host=host)).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:9187", "localhost.evil.example", "10.0.0.1", "", "@"]
)
async def test_loopback_is_not_answered_under_a_name_that_others_can_point_at_it(host: str) -> None:
    response = await ask(Authentication(answer, LOCAL, None), host=host)

    assert response.status_code == 421
    assert "secret" not in response.text
