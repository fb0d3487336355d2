"""
Draws what ``--only scale --json`` has printed: ``python -m tests.benchmarks.scale_plot scale.json scale.svg``.

One line for each kind of work: the cost of an event at each size of the journal, as a multiple of its cost at the
smallest.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from html import escape
from math import log10
from pathlib import Path

Point = tuple[int, float]
_WIDTH, _HEIGHT, _LEFT, _TOP, _LEGEND = 620, 300, 60, 50, 400
_HIGHEST, _LIMIT = 2.5, 1.3
_COLOURS = ("#0b62a4", "#c8452c", "#2b8a3e", "#8e44ad", "#b7791f")


def measured(results: Sequence[Mapping[str, object]]) -> dict[str, list[Point]]:
    """By kind of work, the sizes with the multiple of the cost, the smallest first; only what is a time."""
    found: dict[str, list[Point]] = defaultdict(list)
    for line in results:
        if line["unit"] == "µs/event":
            size, what = str(line["what"]).split(": ", 1)
            found[what].append((_events(size), float(str(line["ratio"]))))
            smallest = (_events(str(line["beside"])), 1.0)
            if smallest not in found[what]:
                found[what].append(smallest)
    return {what: sorted(points) for what, points in found.items()}


def _events(size: str) -> int:
    return int(size.removesuffix(" events").replace(",", ""))


def svg(lines: Mapping[str, Sequence[Point]]) -> str:
    """The picture of what was measured."""
    sizes = sorted({size for points in lines.values() for size, _ in points})
    bottom = _TOP + _HEIGHT

    def x(size: int) -> float:
        return _LEFT + _WIDTH * log10(size / sizes[0]) / log10(sizes[-1] / sizes[0])

    def y(ratio: float) -> float:
        return bottom - _HEIGHT * min(ratio, _HIGHEST) / _HIGHEST

    box, style = f"0 0 {_LEFT + _WIDTH + _LEGEND} {bottom + 40}", "font-family: sans-serif; font-size: 12px"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" style="{style}">',
        '<rect width="100%" height="100%" fill="white"/>',
        _text(_LEFT, 24, "Cost of an event, as a multiple of its cost in the smallest journal"),
    ]
    for ratio, colour in (
        (0.0, "#888"),
        (0.5, "#ddd"),
        (1.0, "#ddd"),
        (_LIMIT, "#c92a2a"),
        (_HIGHEST, "#ddd"),
    ):
        parts.append(
            f'<line x1="{_LEFT}" y1="{y(ratio):.1f}" x2="{_LEFT + _WIDTH}" y2="{y(ratio):.1f}" stroke="{colour}"/>'
        )
        parts.append(_text(_LEFT - 8, y(ratio) + 4, f"{ratio:g}", anchor="end"))
    parts += [_text(x(size), bottom + 20, f"{size:,} events", anchor="middle") for size in sizes]
    for number, (what, points) in enumerate(lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        path = " ".join(f"{x(size):.1f},{y(ratio):.1f}" for size, ratio in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(_text(_LEFT + _WIDTH + 60, _TOP + 20 + 20 * number, what, colour=colour))
    return "\n".join([*parts, "</svg>", ""])


def _text(x: float, y: float, text: str, *, colour: str = "#222", anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}">{escape(text)}</text>'


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    target.write_text(svg(measured(json.loads(source.read_text())["results"])))
