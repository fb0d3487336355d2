"""The variants of a test that the daily set has."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fixtures.variants import telling


def variants(**sizes: int) -> list[Any]:
    return [
        SimpleNamespace(callspec=SimpleNamespace(indices=dict(zip(sizes, each, strict=True))))
        for each in product(*map(range, sizes.values()))
    ]


def test_few_are_all_chosen() -> None:
    assert telling(every := variants(driver=2), 5) == every


def test_each_value_comes_up_before_any_comes_up_again() -> None:
    chosen = [one.callspec.indices for one in telling(variants(driver=2, kind=5, way=3), 5)]

    assert sorted(one["kind"] for one in chosen) == [0, 1, 2, 3, 4]
    assert {one["way"] for one in chosen} == {0, 1, 2}
    assert {one["driver"] for one in chosen} == {0, 1}


def test_the_choice_is_the_same_each_time_and_in_order() -> None:
    every = variants(case=40)

    chosen = telling(every, 5)

    assert chosen == telling(every, 5)
    assert [every.index(one) for one in chosen] == sorted(every.index(one) for one in chosen)


def test_a_test_without_parameters_is_chosen(request: pytest.FixtureRequest) -> None:
    assert telling([request.node], 1) == [request.node]
