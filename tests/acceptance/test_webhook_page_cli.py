"""`projections webhooks page` and `link` as a user runs them."""

from __future__ import annotations

import json
import signal
import subprocess
from base64 import urlsafe_b64encode
from pathlib import Path

import httpx
import pytest

from tests.fixtures.commands import COMMAND, Running, called, environment
from tests.fixtures.webhook_page import fields_of

KEY = urlsafe_b64encode(b"k" * 32).decode()
APP = """
from projections.webhooks import Topic

topics = [Topic("flight.delayed", "A flight leaves later than planned.")]
nothing = 3
"""


@pytest.fixture
def key_file(tmp_path: Path) -> str:
    (tmp_path / "keys").write_text(f"{KEY}\n")
    return str(tmp_path / "keys")


@pytest.mark.slow
def test_a_link_of_the_command_opens_the_page_of_the_command(dsn: str, tmp_path: Path, key_file: str) -> None:
    (tmp_path / "app.py").write_text(APP)
    command = [
        *COMMAND, "webhooks", "page", "--http", "127.0.0.1:0", "--topics", "app:topics", "--name", "Example Air",
        "--log-format", "json",
    ]  # fmt: skip
    variables = environment(PROJECTIONS_PAGE_KEYS=KEY, PROJECTIONS_DSN=dsn)
    with subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env=variables
    ) as process:
        try:
            run = Running(process)
            site = f"http://{run.until('serving')['address']}"
            link = called("webhooks", "link", "acme", "--url", site, "--key-file", key_file).stdout.strip()
            with httpx.Client(base_url=site, trust_env=False, follow_redirects=True) as browser:
                assert browser.get("/").status_code == 401
                fields = fields_of(browser.get(link).text, "/enter")
                page = browser.post("/enter", data=fields, headers={"origin": "null"})
                assert "Webhooks of <bdi>acme</bdi>" in page.text
                assert "Example Air" in page.text
                assert "A flight leaves later than planned." in browser.get("/topics").text
            run.signal(signal.SIGTERM)
            assert run.end() == 0
            assert not any(KEY in str(line) or "token=" in str(line) for line in run.log)
        finally:
            process.kill()


def test_a_link_is_told_as_json(key_file: str) -> None:
    done = called(
        "webhooks", "link", "acme", "--url", "https://a.example/x", "--key-file", key_file, "--json"
    )
    told = json.loads(done.stdout)
    assert told["tenant"] == "acme"
    assert told["url"].startswith("https://a.example/x/enter?token=pwl1.")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--url", "http://app.example.com/"], "sessions need https"),
        (["--expires-in", "2d"], "2d is too long"),
        (["--key-file", "no-such-file"], "cannot be read"),
    ],
)
def test_a_link_that_cannot_be_is_refused(key_file: str, arguments: list[str], said: str) -> None:
    done = called("webhooks", "link", "acme", "--key-file", key_file, *arguments)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert KEY not in done.stderr


def test_keys_that_cannot_be_are_in_no_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROJECTIONS_PAGE_KEYS", raising=False)
    assert "has no key to sign links with" in called("webhooks", "link", "acme").stderr
    for text in ("é-very-secret", "dmVyeS1zZWNyZXQ="):
        (tmp_path / "keys").write_text(text)
        done = called("webhooks", "link", "acme", "--key-file", str(tmp_path / "keys"))
        assert done.returncode == 2
        assert text not in done.stderr
        assert "very-secret" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--topics", "app:nothing"], "is not a list of Topic"),
        (["--topics", "app:none"], "cannot be imported"),
        (["--accent", "#ffff00"], "take a darker one"),
        (["--http", "0.0.0.0:8761"], "sessions need https"),
        (["--logo", "no-such-logo.svg"], "cannot be read"),
    ],
)
def test_a_page_that_cannot_be_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key_file: str, arguments: list[str], said: str
) -> None:
    (tmp_path / "app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    done = subprocess.run(
        [*COMMAND, "webhooks", "page", "--key-file", key_file, *arguments], cwd=tmp_path, capture_output=True,
        text=True, env=environment(), check=False, timeout=300,
    )  # fmt: skip
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
