"""Client certificates and clients of OAuth over the API: set, shown without what is secret, taken away."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from journal import Database
from projections.webhooks.endpoints import Endpoints, EndpointSettings
from tests.fixtures.certificates import Authority
from tests.fixtures.webhooks_api import TOKENS, Api, application

OAUTH = {
    "token_url": "https://login.example.com/token",
    "client_id": "acme",
    "client_secret": "s3cret",
    "scope": "w",
}


async def test_they_are_set_shown_and_taken_away(database: Database) -> None:
    made = await Endpoints(database).create("acme", EndpointSettings(url="https://example.com/"))
    path = f"/v1/endpoints/{made.endpoint.endpoint_id}"
    app, pem = application(database), Authority().client("acme")
    ask, other = Api(app, TOKENS["acme"]), Api(app, TOKENS["globex"])
    for kind, body in (("certificate", {"pem": pem}), ("oauth", OAUTH)):
        await other("PUT", f"{path}/{kind}", body, 404)
        set_ = await ask("PUT", f"{path}/{kind}", body, 200)
        assert set_.headers["etag"] == f'"{set_.json()["version"]}"'
    shown = (await ask("GET", path, status=200)).json()
    assert shown["certificate"]["subject"] == "CN=acme"
    until = datetime.fromisoformat(shown["certificate"]["not_after"])
    assert timedelta(0) < until - datetime.now(UTC) < timedelta(days=2)
    assert shown["oauth"] == {name: OAUTH[name] for name in ("token_url", "client_id", "scope")} | {
        "method": "basic"
    }
    listed = await ask("GET", "/v1/endpoints", status=200)
    for answer in (listed.text, str(shown)):
        assert "PRIVATE KEY" not in answer
        assert "s3cret" not in answer

    for kind in ("certificate", "oauth"):
        await other("DELETE", f"{path}/{kind}", status=404)
        refused = await ask("DELETE", f"{path}/{kind}", headers={"if-match": '"1"'}, status=412)
        assert refused.json()["code"] == "outdated_version"
        await ask("DELETE", f"{path}/{kind}", status=204)
    shown = (await ask("GET", path, status=200)).json()
    assert (shown["certificate"], shown["oauth"]) == (None, None)


async def test_what_cannot_be_is_refused_without_showing_it(database: Database) -> None:
    made = await Endpoints(database).create("acme", EndpointSettings(url="https://example.com/"))
    path = f"/v1/endpoints/{made.endpoint.endpoint_id}"
    ask = Api(application(database), TOKENS["acme"])
    key = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----"
    for pem in ("", key, "x" * 32_769, "x" * 200_000, Authority().client(good_for=timedelta(days=-1))):
        refused = await ask("PUT", f"{path}/certificate", {"pem": pem})
        assert refused.status_code in {413, 422}
        assert "c2VjcmV0" not in refused.text
    for wrong in (
        {"token_url": "https://169.254.169.254/latest"}, {"token_url": "http://example.com/"},
        {"client_secret": ""}, {"client_secret": "\n"}, {"method": "jwt"}, {"scope": "a\nb"}, {"client_id": ""},
    ):  # fmt: skip
        assert (await ask("PUT", f"{path}/oauth", OAUTH | wrong, 422)).status_code == 422
