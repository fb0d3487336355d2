"""Commands that show something when nothing else is asked of them, such as ``projections groups``."""

from __future__ import annotations

import click

__all__ = ["ShowsByDefault"]


class ShowsByDefault(click.Group):
    """A group of commands that runs its command ``show`` where no other is named first."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put ``show`` before what is not a command or a request for help."""
        if not args or args[0] not in {*self.commands, *ctx.help_option_names}:
            args = ["show", *args]
        return super().parse_args(ctx, args)
