"""A command says the same in a process of its own as it does in that of a test, where most tests run it."""

from __future__ import annotations

import re

import pytest

from tests.fixtures.commands import called, projections

COMMANDS = [
    ["status"],
    ["lag", "--fail-above", "1s"],
    ["workers"],
    ["offsets", "list"],
    ["offsets", "clear", "nobody", "--yes"],
    ["parked", "list", "nobody"],
    ["pause", "nobody"],
    ["resume", "nobody"],
    ["wait", "nobody", "--token", "nothing"],
    ["rescale", "nobody", "--ranges", "2"],
    ["groups"],
    ["groups", "remove", "nobody"],
    ["subscriptions"],
    ["subscribe", "billing", "--params", "{"],
    ["subscribe", "billing"],
    ["publish", "order.paid", '{"ä": 1}'],
    ["doctor"],
]


@pytest.mark.daily(2)
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_command_says_the_same_in_a_process_of_its_own(dsn: str, command: list[str]) -> None:
    alone, here = projections(*command, "--dsn", dsn), called(*command, "--dsn", dsn)

    assert alone.stdout + alone.stderr
    assert (alone.returncode, alone.stderr) == (here.returncode, here.stderr)
    assert without_numbers(alone.stdout) == without_numbers(here.stdout)


def without_numbers(text: str) -> str:
    """Times, lengths and ids may differ."""
    return re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d+", "0", text)
