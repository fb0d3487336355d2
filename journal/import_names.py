"""
Packages of an application that are named as ours: Python imports only the one that comes first.

Imports nothing of ours, which may be what cannot be imported. For the same reason other packages run it by its path.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

_HOME = Path(__file__).resolve().parent.parent
_WAY_OUT = (
    "Rename the one of your application, or move it into another package of yours, such as my_app.{name}; "
    "`python -m` and PYTHONPATH put directories before the installed packages"
)


def check_import_names(*names: str) -> None:
    """
    Check that packages are those of this installation, before they are imported.

    Args:
        names: The packages that the caller imports.

    Raises:
        ImportError: The application has one of the same name, which comes first; the message names both files.
    """
    for name in names:
        try:
            spec = find_spec(name)
        except ValueError:  # a module that somebody has put into sys.modules by hand
            continue
        ours, found = _HOME / name / "__init__.py", spec.origin if spec else None
        if found is not None and ours.exists() and Path(found).resolve() != ours:
            raise ImportError(
                f"slice-projections needs its own package {name!r} ({ours}), but Python finds another one first "
                f"({found}). {_WAY_OUT.format(name=name)}",
                name=name,
                path=found,
            )


def clash_of(error: BaseException) -> str | None:
    """
    What to say about an import that failed because ours was found instead of the application's.

    Args:
        error: What the import raised: what was looked for is not in a package or a module of that name.

    Returns:
        A sentence that names both files; None where the names do not clash.
    """
    if isinstance(error, AttributeError):
        named = getattr(error.obj, "__name__", "")
    else:
        named = (isinstance(error, ImportError) and error.name) or ""
    name = named.partition(".")[0]
    ours = _HOME / name / "__init__.py"
    if name not in {"journal", "offsets", "projections", "spark_projections"} or not ours.exists():
        return None
    for directory in sys.path:
        spec = PathFinder.find_spec(name, [directory])
        if spec and spec.origin and Path(spec.origin).resolve() != ours:
            return (
                f"there are two packages {name!r}: that of slice-projections ({ours}), which was imported, and "
                f"{spec.origin}. {_WAY_OUT.format(name=name)}"
            )
    return None
