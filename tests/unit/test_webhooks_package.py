from __future__ import annotations

import subprocess
import sys

import pytest

from projections import webhooks

WITHOUT_EXTRA = """
import sys
for name in ("aiohttp", "yarl", "multidict", "cronsim", "cryptography", "jinja2", "starlette", "uvicorn"):
    sys.modules[name] = None
from projections.webhooks import VerificationFailed, generate_secret, sign, verify
secret = generate_secret()
signature = sign([secret], "m", 1700000000, b"{}")
headers = {"webhook-id": "m", "webhook-timestamp": "1700000000", "webhook-signature": signature}
try:
    verify(secret, headers, b"{}")
except VerificationFailed as error:
    print(error)
"""


@pytest.mark.parametrize("name", webhooks.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(webhooks, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        webhooks.nothing  # noqa: B018


@pytest.mark.slow
def test_a_receiver_needs_no_extra() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_EXTRA], check=True, capture_output=True, text=True)
    assert "too far from now" in done.stdout
