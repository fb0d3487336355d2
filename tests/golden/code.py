"""What the code of the packages and the SQL say: variables of the environment, actions of the log, errors."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

from tests.fixtures.own_code import ROOT, environment_variables, logged_actions, trees
from tests.golden.python_names import PACKAGES as PUBLIC
from tests.golden.python_names import names_of
from tests.golden.recordings import Files, Fresh, lines

_ROOT = "ProjectionsError"
_OF_COMMANDS = {"click.BadParameter", "click.UsageError"}
_STRING = r"'(?:[^']|'')*'"
_RAISED = re.compile(rf"\bRAISE\s+EXCEPTION\s+({_STRING}(?:\s*{_STRING})*)((?:{_STRING}|[^;'])*)", re.DOTALL)
_CODE = re.compile(r"ERRCODE = '(PJ\d{3})'")
_HINT = re.compile(rf"HINT = ({_STRING}(?:\s*{_STRING})*)")


def environment(_: Fresh) -> Files:
    """The variables of the environment that are read, one a line."""
    return {"environment.txt": lines(sorted(environment_variables()))}


def log_actions(_: Fresh) -> Files:
    """The actions of lines of the log, one a line."""
    return {"log_actions.txt": lines(sorted(logged_actions()))}


def errors(_: Fresh) -> Files:
    """
    The codes and messages that functions of SQL raise; and the messages that Python raises, by the class to catch.

    What a message is filled with is ``%`` in SQL and ``…`` in Python. In Python these are the texts of ``raise``
    statements; a message that a helper puts together is not among them.
    """
    return {"errors/sql.txt": lines(_sections(_sql())), "errors/python.txt": lines(_sections(_python()))}


def _sections(found: dict[str, set[str]]) -> Iterator[str]:
    for title in sorted(found):
        yield title
        yield from (f"    {' '.join(text.split())}" for text in sorted(found[title]))


def _sql() -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for file in (ROOT / "sql").rglob("*.sql"):
        for message, rest in _RAISED.findall(file.read_text()):
            if code := _CODE.search(rest):
                hint = _HINT.search(rest)
                found[code[1]].add(
                    f"{_unquoted(message)} HINT: {_unquoted(hint[1])}" if hint else _unquoted(message)
                )
    return found


def _unquoted(literals: str) -> str:
    """A text of SQL, which may be in several literals."""
    return "".join(one[1:-1].replace("''", "'") for one in re.findall(_STRING, literals))


def _python() -> dict[str, set[str]]:
    """The messages by the class that users catch, with the codes of the database that become an error of it."""
    bases: dict[str, list[str]] = {}
    said: set[tuple[str, str]] = set()
    for node in (node for tree in trees() for node in ast.walk(tree)):
        if isinstance(node, ast.ClassDef):
            bases[node.name] = [_dotted(base) for base in node.bases]
            said |= {*_described(node)}
        elif isinstance(node, ast.Call):
            said |= {*_made(node)}
        elif isinstance(node, ast.Dict):
            said |= {*_translated(node)}
    public = {name for package in PUBLIC for name in names_of(package)}
    found: dict[str, set[str]] = defaultdict(set)
    for name, text in said:
        if caught := _caught(name, bases, public):
            found[caught].add(text)
    return found


def _dotted(node: ast.expr) -> str:
    """A name, or an attribute of one; no other expression."""
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _caught(name: str, bases: dict[str, list[str]], public: set[str]) -> str | None:
    """The nearest public class of an error of ours, or the class of click that it is; None for other classes."""
    if name.startswith("click."):
        return name if name in _OF_COMMANDS else None
    above = [found for base in bases.get(name, []) if (found := _caught(base, bases, public))]
    return name if name == _ROOT or (above and name in public) else next(iter(above), None)


def _made(node: ast.Call) -> Iterator[tuple[str, str]]:
    """An error that is made with a text, and with a code, if it has one."""
    if node.args and (text := _text(node.args[0])):
        codes = [*node.args[1:2], *(one.value for one in node.keywords if one.arg == "code")]
        code = next((one.value for one in codes if isinstance(one, ast.Constant)), None)
        yield _dotted(node.func), text if code is None else f"{text} (code {code!s})"


def _described(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """The text that the class of an error makes by itself."""
    made = (one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__")
    for call in (one for method in made for one in ast.walk(method) if isinstance(one, ast.Call)):
        if call.args and ast.unparse(call.func) == "super().__init__" and (text := _text(call.args[0])):
            yield node.name, text


def _translated(node: ast.Dict) -> Iterator[tuple[str, str]]:
    """The codes of the database that are raised as errors of a class."""
    for key, value in zip(node.keys, node.values, strict=True):
        if isinstance(key, ast.Constant) and re.fullmatch(r"PJ\d{3}", str(key.value)):
            made = value.args[0] if isinstance(value, ast.Call) else value
            code = value.keywords[0].value if isinstance(value, ast.Call) else None
            told = f" (code {code.value!s})" if isinstance(code, ast.Constant) else ""
            yield _dotted(made), f"SQLSTATE {key.value!s}{told}"


def _text(node: ast.expr) -> str | None:
    """A text of a message, with ``…`` for what it is filled with."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) or "…" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
