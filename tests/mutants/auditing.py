"""Bugs of the history checker, which all that runs real processes relies on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from projections.auditing import history
from tests.mutants.layers import Pytest
from tests.mutants.mutant import mutant
from tests.mutants.seeding import method

_CORRUPTIONS = Pytest("tests/property/test_history.py::test_one_corruption_is_found_and_nothing_else")


def _blind(kind: str) -> AbstractContextManager[Any]:
    right = history._Source.compare

    def compare(self: Any, effects: Sequence[Any]) -> Iterator[Any]:
        return (found for found in right(self, effects) if found[0] != kind)

    return method(history._Source, "compare", compare)


@mutant(
    "the-checker-misses-losses",
    "an event that is lost is not told",
    "projections/auditing/history.py: _Source.compare",
    _CORRUPTIONS,
)
def _no_losses() -> AbstractContextManager[Any]:
    return _blind("lost")


@mutant(
    "the-checker-misses-doubles",
    "an event that is handled twice is not told",
    "projections/auditing/history.py: _Source.compare",
    _CORRUPTIONS,
)
def _no_doubles() -> AbstractContextManager[Any]:
    return _blind("doubled")


@mutant(
    "the-checker-misses-the-order",
    "an event out of order is not told",
    "projections/auditing/history.py: _Source.compare",
    _CORRUPTIONS,
)
def _no_order() -> AbstractContextManager[Any]:
    return _blind("out_of_order")
