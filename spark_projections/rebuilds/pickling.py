"""What takes objects to the processes of tasks."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from projections.extras import from_extra


def cloudpickle() -> Any:
    """For what is not a part of a module: PySpark's copy, for its executors have that; else the package."""
    with from_extra("arrow"):
        return import_module("pyspark.cloudpickle" if find_spec("pyspark") else "cloudpickle")
