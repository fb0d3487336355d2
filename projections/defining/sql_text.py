"""
The text of a statement as it was written, in pieces, with the names of columns and tables in quotes.

PostgreSQL runs this text, and not what a parser has made of it. So each word of it must be one of PostgreSQL's own that
a read model may have, or a name that was found where it belongs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from projections.defining.sql_expressions import DIALECT, NotIncremental
from projections.defining.sql_fields import quote_literal, quote_name, short_name
from projections.extras import from_extra

with from_extra("sql"):
    from sqlglot import Dialect, Token, TokenType, exp


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FUNCTIONS = _words("""
    count sum min max bool_and bool_or avg last abs round floor ceil ceiling sign mod coalesce nullif greatest least
    lower upper length char_length character_length substring substr trim btrim ltrim rtrim left right replace extract
    date_part date_trunc cast
""")
_KEYWORDS = _words("""
    select from where group by as and or not is null true false in between like ilike escape case when then else end
    distinct union all filter cast at time zone for both leading trailing
""")
_TYPES = _words("""
    text int integer int2 int4 int8 bigint smallint numeric decimal dec real float float4 float8 double precision
    boolean bool date time timetz timestamp timestamptz with without zone interval uuid char character varying varchar
    bpchar json jsonb
""")
_PARTS = _words("""
    century day days decade dow doy epoch hour hours isodow isoyear julian microseconds millennium milliseconds minute
    minutes month months quarter second seconds timezone timezone_hour timezone_minute week weeks year years
""")
_WORDS = _KEYWORDS | _TYPES | _PARTS
_BEFORE_PARENTHESES = _FUNCTIONS | _TYPES | _KEYWORDS
_SIGNS = frozenset({
    "+", "-", "*", "/", "%", "=", "<>", "!=", ">", ">=", "<", "<=", "||", "::", "->", "->>", "(", ")", ",", ".", ";",
})  # fmt: skip
_NUMBER = re.compile(r"(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_INSTEAD = {
    "ifnull": "PostgreSQL has no such function; write coalesce",
    "nvl": "PostgreSQL has no such function; write coalesce",
    "if": "PostgreSQL has no such function; write CASE WHEN … THEN … ELSE … END",
    "iif": "PostgreSQL has no such function; write CASE WHEN … THEN … ELSE … END",
}
_OPENING, _CLOSING = (
    {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.CASE},
    {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.END},
)

Piece = Sequence[Token]


class Clauses(NamedTuple):
    """The pieces of a SELECT; those that it does not have are empty."""

    selected: Sequence[Piece]
    source: Piece
    where: Piece


class WrittenStatement:
    """
    A statement as it was written.

    Args:
        sql: The text.
        root: What the parser has made of it, with the names as PostgreSQL folds them.
    """

    def __init__(self, sql: str, root: exp.Expr) -> None:
        self._sql = sql
        self.tokens: Piece = Dialect.get_or_raise(DIALECT).tokenize(sql)
        self._names: dict[int, str] = {}
        self._dropped: set[int] = set()
        for found in root.find_all(exp.Identifier):
            if "start" in found.meta:
                self._names[found.meta["start"]] = quote_name(short_name(found.name))
        for column in root.find_all(exp.Column):
            if isinstance(of := column.args.get("table"), exp.Identifier):
                ends = column.this.meta.get("start", of.meta["end"])
                self._dropped.update(t.start for t in self.tokens if of.meta["start"] <= t.start < ends)

    def clauses(self) -> Clauses:
        """The pieces of the outermost SELECT."""
        parts: dict[TokenType, list[Token]] = {
            kind: [] for kind in (TokenType.SELECT, TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY)
        }
        place, depth, before = parts[TokenType.SELECT], 0, None
        for token in self.tokens:
            of_distinct = token.token_type is TokenType.FROM and before is TokenType.DISTINCT
            if depth == 0 and token.token_type in parts and not of_distinct:
                place = parts[token.token_type]
            elif token.token_type is not TokenType.SEMICOLON:
                place.append(token)
            depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
            before = token.token_type
        return Clauses(
            _between_commas(parts[TokenType.SELECT]), parts[TokenType.FROM], parts[TokenType.WHERE]
        )

    def text(self, piece: Piece) -> str:
        """SQL of a piece."""
        found: list[str] = []
        ended = piece[0].start if piece else 0
        for token in piece:
            if token.start not in self._dropped:
                # A line break may part two halves of a literal; comments are left out.
                gap = self._sql[ended : token.start]
                found += ["\n" if "\n" in gap else " " * bool(gap), self._word(token)]
                ended = token.end + 1
        return "".join(found).strip()

    def check(self) -> None:
        """Refuse words that are neither PostgreSQL's nor names, as a parser knows those of others, too."""
        for place, token in enumerate(self.tokens):
            if token.start in self._names or token.start in self._dropped:
                continue
            raw = self._raw(token)
            following = self.tokens[place + 1].token_type if place + 1 < len(self.tokens) else None
            called = following is TokenType.L_PAREN
            words = raw.lower().split()
            known = _BEFORE_PARENTHESES if called else _WORDS
            if token.token_type is TokenType.STRING:
                fits = raw.startswith("'")
            elif token.token_type is TokenType.NUMBER:
                fits = _NUMBER.fullmatch(raw) is not None
            else:
                fits = raw in _SIGNS or all(word in known for word in words)
            if not fits:
                why = "it is not known to be the same on every server; write it otherwise"
                raise NotIncremental(raw + "(…)" * called, _INSTEAD.get(raw.lower(), why))

    def _raw(self, token: Token) -> str:
        return self._sql[token.start : token.end + 1]

    def _word(self, token: Token) -> str:
        if token.start in self._names:
            return self._names[token.start]
        raw = self._raw(token)
        # What a backslash is depends on a setting.
        return quote_literal(token.text) if token.token_type is TokenType.STRING and "\\" in raw else raw


def expression(selected: Piece, one: exp.Expr) -> Piece:
    """What is selected, without its name."""
    if not isinstance(one, exp.Alias):
        return selected
    rest = selected[:-1]
    return rest[:-1] if rest and rest[-1].token_type is TokenType.ALIAS else rest


def aggregate(piece: Piece) -> tuple[Piece, Piece]:
    """Of a call of an aggregate, what is in its parentheses, and the condition of its FILTER."""
    depth = 0
    for place, token in enumerate(piece):
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if token.token_type is TokenType.R_PAREN and depth == 0:
            return piece[2:place], piece[place + 4 : -1]  # FILTER ( WHERE … )
    return (), ()


def _between_commas(tokens: Piece) -> list[Piece]:
    found: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        if depth == 0 and token.token_type is TokenType.COMMA:
            found.append([])
        else:
            found[-1].append(token)
    return list[Any](found)
