"""Names that are imported when they are asked for are those that type checkers see."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest


@pytest.mark.parametrize("package", ["projections.webhooks", "spark_projections"])
def test_type_checkers_see_each_name_where_it_is(package: str) -> None:
    module = import_module(package)
    text = Path(str(module.__file__)).read_text()
    seen = re.findall(r"    from ([\w.]+) import (\w+) as \2\n", text)

    assert sorted(name for _, name in seen) == module.__all__
    assert set(module.__all__) <= set(dir(module))
    for home, name in seen:
        assert getattr(module, name) is getattr(import_module(home), name)
