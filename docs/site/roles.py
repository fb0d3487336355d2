"""Cross-references of docstrings, written as roles of Sphinx, as links of the site."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from griffe import Extension
from python_api import documented_at

if TYPE_CHECKING:
    from griffe import Object

_ROLE = re.compile(r":(?:func|class|meth|mod|attr|data|exc):`~?\.?([\w.]+)`")


class Roles(Extension):
    """Replaces ``:func:`append``` by a link to where ``append`` is described, else by code."""

    def __init__(self) -> None:
        self._homes = documented_at()

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite the docstring of an object."""
        if obj.docstring is not None:
            obj.docstring.value = _ROLE.sub(lambda role: self._link(role[1]), obj.docstring.value)

    def _link(self, target: str) -> str:
        first, *rest = [part for part in target.split(".") if part[0].isupper()] or [
            target.rpartition(".")[2]
        ]
        if first not in self._homes:
            return f"`{target}`"
        rest = target.split(f"{first}.", 1)[1:] if rest or f"{first}." in target else []
        return f"[`{target}`][{'.'.join([self._homes[first], first, *rest])}]"
