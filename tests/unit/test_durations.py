"""Durations as people write them, and as options take them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import click
import pytest

from projections.cli import main
from projections.durations import Duration, InvalidDuration, duration_text, parse_duration


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("500ms", 0.5), ("30s", 30), ("1.5m", 90), ("2h", 7200), ("1d", 86400), ("0s", 0),
        ("1h30m", 5400), ("1m30s", 90), ("1d2h3m4s5ms", 93784.005),
    ],
)  # fmt: skip
def test_durations_are_read(text: str, expected: float) -> None:
    assert parse_duration(text) == timedelta(seconds=expected)


@pytest.mark.parametrize(
    "text",
    ["", "30", "s", "-1s", "1w", "1 s", "9" * 30 + "d", "nan s", "1s ", "1m1h", "1s1s", "1h30", "\u0663s"],
)
def test_a_text_that_is_not_a_duration_is_refused(text: str) -> None:
    with pytest.raises(InvalidDuration, match="write 500ms, 30s, 5m, 1h30m or 1d"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["0s", "1ms", "1.5ms", "90s", "5m", "90m", "1d", "36h"])
def test_what_is_written_is_read_as_the_same(text: str) -> None:
    assert duration_text(parse_duration(text)) == text


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (Duration(), "10m", timedelta(minutes=10)),
        (Duration(word="none"), "none", "none"),
        (Duration(least="1s", most="1h"), "1h", timedelta(hours=1)),
    ],
)
def test_an_option_takes(kind: Duration, text: str, expected: object) -> None:
    assert kind.convert(text, None, None) == expected


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (Duration(), "10", "'10' is not a duration: write 500ms, 30s, 5m, 1h30m or 1d"),
        (Duration(), "1h30", "'1h30' is not a duration"),
        (Duration(), "nan", "'nan' is not a duration"),
        (Duration(word="forever"), "never", "1h30m or 1d, or forever"),
        (Duration(least="1s"), "500ms", "500ms is too short: the least is 1s"),
        (Duration(most="1h"), "61m", "61m is too long: the most is 1h"),
    ],
)
def test_an_option_refuses(kind: Duration, text: str, reason: str) -> None:
    with pytest.raises(click.BadParameter, match=reason):
        kind.convert(text, None, None)


def test_no_command_takes_a_duration_in_another_way() -> None:
    named = (
        *("timeout", "lease", "grace", "maintain-every", "within", "interval"),
        *("retention", "patience", "window", "delay"),
    )
    endings = tuple(f"-{name}" for name in named)

    odd = [
        f"{path} {option.opts[0]}: {option.type}"
        for path, option in _options(main, ())
        if option.opts[0].endswith(endings) and not isinstance(option.type, Duration)
    ]

    assert odd == []


def _options(command: click.Command, path: tuple[str, ...]) -> list[tuple[str, Any]]:
    found = [(" ".join(path), one) for one in command.params if isinstance(one, click.Option)]
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            sub = command.get_command(context, name)
            assert sub is not None
            found += _options(sub, (*path, name))
    return found
