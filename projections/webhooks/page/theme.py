"""How the page looks: a name, colours and a logo of the application that it belongs to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from projections.webhooks.errors import InvalidTheme

_COLOUR = re.compile(r"#[0-9a-fA-F]{6}")
_LIGHT, _DARK = "#f3f5f5", "#162024"
_CONTRAST = 4.5
"""The least that people read, of WCAG 2.2."""
_LOGOS = {".svg": "image/svg+xml", ".png": "image/png", ".webp": "image/webp", ".jpg": "image/jpeg"}
_LARGEST_LOGO = 262_144
_LONGEST_NAME = 80


@dataclass(frozen=True, slots=True)
class PageTheme:
    """
    How the page for tenants looks.

    Args:
        name: Of the application, as its users know it; up to 80 characters.
        accent: Of links and buttons, ``#rrggbb``: dark enough to be read on #f3f5f5.
        accent_dark: The same for those who prefer a dark page: light enough to be read on #162024.
        logo: A file of up to 256 KiB, .svg, .png, .webp or .jpg, which the page serves; None: the name alone.
        home: Where the application is, for the link back to it, and where to get a new link; None: there is no link.

    Raises:
        InvalidValue: A colour, the name, the logo or the URL is invalid; the message says what to change.
    """

    name: str = "Webhooks"
    accent: str = "#0b6b7a"
    accent_dark: str = "#5cc4d4"
    logo: Path | None = None
    home: str | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.name) <= _LONGEST_NAME:
            raise InvalidTheme(f"name has 1 to {_LONGEST_NAME} characters, not {len(self.name)}")
        for name, colour, surface in (
            ("accent", self.accent, _LIGHT),
            ("accent_dark", self.accent_dark, _DARK),
        ):
            if not _COLOUR.fullmatch(colour):
                raise InvalidTheme(f"{name} is a colour such as #0b6b7a, not {colour!r:.40}")
            if (found := _contrast(colour, surface)) < _CONTRAST:
                raise InvalidTheme(
                    f"{name} {colour} has a contrast of {found:.1f} on {surface}; {_CONTRAST} is the least that people "
                    f"can read: take a {'darker' if surface == _LIGHT else 'lighter'} one"
                )
        if self.home is not None and not re.fullmatch(r"https?://[!-~]+", self.home):
            raise InvalidTheme(f"home is a URL such as https://app.example.com, not {self.home!r:.200}")
        if self.logo is not None:
            self._check_logo(self.logo)

    @staticmethod
    def _check_logo(logo: Path) -> None:
        if logo.suffix.lower() not in _LOGOS:
            raise InvalidTheme(f"logo is a file of {', '.join(_LOGOS)}, not {str(logo)!r}")
        try:
            size = logo.stat().st_size
        except OSError as error:
            raise InvalidTheme(f"logo {str(logo)!r} cannot be read: {error.strerror}") from error
        if size > _LARGEST_LOGO:
            raise InvalidTheme(f"logo has {size:,} bytes, more than {_LARGEST_LOGO:,}")

    @property
    def logo_type(self) -> str:
        """The media type of the logo."""
        assert self.logo is not None  # noqa: S101 - asked for where there is one
        return _LOGOS[self.logo.suffix.lower()]

    @property
    def stylesheet(self) -> str:
        """The colours, as CSS."""
        return (
            f":root {{ --accent: {self.accent}; --on-accent: {_on(self.accent)}; }}\n"
            "@media (prefers-color-scheme: dark) {\n"
            f"  :root {{ --accent: {self.accent_dark}; --on-accent: {_on(self.accent_dark)}; }}\n"
            "}\n"
        )


def _on(colour: str) -> str:
    """What is read on a colour."""
    return max("#ffffff", "#06181c", key=lambda ink: _contrast(ink, colour))


def _contrast(one: str, other: str) -> float:
    """Of two colours, 1 to 21: https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio."""
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4  # noqa: PLR2004 - of the definition
        for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
