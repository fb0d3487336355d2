"""A soak's file as a picture: memory, latency, sizes and dead rows over time, as SVG of our own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from math import log10
from typing import Any, NamedTuple

from tests.soak.scoreboard import dead, own_memory, scoreboard, size

Line = Mapping[str, Any]
Point = tuple[float, float]

_WIDTH, _HEIGHT, _LEFT, _TOP, _GAP = 900, 150, 70, 60, 60
_COLOURS = ("#0b62a4", "#c8452c", "#2b8a3e", "#8e44ad", "#b7791f", "#444444")
_STYLE = "font-family: sans-serif; font-size: 12px; fill: #222"


class Panel(NamedTuple):
    """
    One of the plots.

    Args:
        title: What is shown, with its unit.
        lines: By name, the points (seconds, value).
        logarithmic: Whether the axis is.
    """

    title: str
    lines: Mapping[str, Sequence[Point]]
    logarithmic: bool = False


def svg(lines: Sequence[Line]) -> str:
    """The picture of a soak."""
    samples = [line for line in lines if line["kind"] == "sample"]
    until = max(line["at"] for line in samples)
    panels = _panels(samples)
    scores = scoreboard(lines)
    height = _TOP + len(panels) * (_HEIGHT + _GAP) + 18 * len(scores) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH + _LEFT + 20} {height}" style="{_STYLE}">',
        '<rect width="100%" height="100%" fill="white"/>',
        _text(_LEFT, 24, _title(lines, until), size=15),
    ]
    for number, panel in enumerate(panels):
        parts += _panel(panel, _TOP + number * (_HEIGHT + _GAP), until, lines)
    top = _TOP + len(panels) * (_HEIGHT + _GAP)
    for number, score in enumerate(scores):
        colour = "#2b8a3e" if score.passed else "#c92a2a"
        parts.append(_text(_LEFT, top + 18 * number, str(score), colour=colour))
    return "\n".join([*parts, "</svg>", ""])


def _title(lines: Sequence[Line], until: float) -> str:
    [start] = [line for line in lines if line["kind"] == "start"]
    appended = max(line["appended"] for line in lines if line["kind"] == "sample")
    return f"{until / 3600:.2f} hours, {start['rate']:g} events/s, {appended:,} events, seed {start['seed']}"


def _panels(samples: Sequence[Line]) -> list[Panel]:
    def points(value: Callable[[Line], float], of: Sequence[Line] = samples) -> list[Point]:
        return [(line["at"], value(line)) for line in of]

    residents = sorted(set.intersection(*(set(line["processes"]) for line in samples)))
    told = [line for line in samples if line["latency"]]
    percentiles = {
        name: points(lambda line, name=name: line["latency"][name], told)  # type: ignore[misc]
        for name in ("p50", "p99", "max")
    }
    memory = {
        name: points(lambda line, name=name: own_memory(line, name))  # type: ignore[misc]
        for name in residents
    }
    sizes = {
        "tables and indexes": points(size),
        "journal": points(lambda line: _bytes(line, "events") / 1e6),
    }
    return [
        Panel("memory of a process, MB", memory),
        Panel("append to handled, ms", percentiles, logarithmic=True),
        Panel("sizes, MB, without the record of all that was handled", sizes),
        Panel("dead rows", {"all tables": points(dead)}),
        Panel("load of the machine", {"processes that want to run": points(lambda line: line.get("load", 0.0))}),
    ]  # fmt: skip


def _bytes(line: Line, table: str) -> float:
    found = line["tables"].get(table, {"bytes": 0, "index_bytes": 0})
    return float(found["bytes"] + found["index_bytes"])


def _panel(panel: Panel, top: int, until: float, lines: Sequence[Line]) -> list[str]:
    largest = max((value for points in panel.lines.values() for _, value in points), default=1.0) or 1.0

    def x(at: float) -> float:
        return _LEFT + at / until * _WIDTH

    def y(value: float) -> float:
        share = log10(1 + max(value, 0)) / log10(1 + largest) if panel.logarithmic else value / largest
        return top + _HEIGHT * (1 - share)

    parts = [*_incidents(lines, x, top), _text(_LEFT, top - 8, panel.title)]
    for share in (0.0, 0.5, 1.0):
        value = (1 + largest) ** share - 1 if panel.logarithmic else largest * share
        parts.append(_line((_LEFT, y(value)), (_LEFT + _WIDTH, y(value)), "#ddd"))
        parts.append(_text(_LEFT - 6, y(value) + 4, f"{value:,.4g}", anchor="end"))
    for hours in range(int(until / 1800) + 1):
        parts.append(_text(x(1800 * hours), top + _HEIGHT + 16, f"{hours / 2:g} h", anchor="middle"))
    for number, (name, points) in enumerate(panel.lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        path = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.3"/>')
        parts.append(_text(_LEFT + _WIDTH - 150 * number, top - 8, name, colour=colour, anchor="end"))
    return parts


def _incidents(lines: Sequence[Line], x: Callable[[float], float], top: int) -> list[str]:
    """A band where a transaction held every dead row, and a tick where a worker came, left or was killed."""
    held = [line["at"] for line in lines if line["kind"] in {"xmin held", "xmin released"}]
    parts = []
    if len(held) == 2:
        begins, ends = map(x, held)
        parts.append(
            f'<rect x="{begins:.1f}" y="{top}" width="{ends - begins:.1f}" height="{_HEIGHT}" fill="#fff3bf"/>'
        )
    for line in lines:
        if line["kind"] in {"join", "leave", "kill"}:
            colour = "#c92a2a" if line["kind"] == "kill" else "#868e96"
            at = x(line["at"])
            parts.append(_line((at, top + _HEIGHT), (at, top + _HEIGHT - 6), colour))
    return parts


def _line(begin: Point, end: Point, colour: str) -> str:
    return f'<line x1="{begin[0]:.1f}" y1="{begin[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}" stroke="{colour}"/>'


def _text(
    x: float, y: float, text: str, *, size: int = 12, colour: str = "#222", anchor: str = "start"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}">'
        f"{escape(text)}</text>"
    )
