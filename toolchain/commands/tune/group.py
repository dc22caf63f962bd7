"""A group of commands of which one needs no name: `tk tune model.onnx` is `tk tune search model.onnx`."""

from __future__ import annotations

from typing import Any

import typer.core

DEFAULT = "search"
"""The command that is meant where the first word is none's name."""


class TuneGroup(typer.core.TyperGroup):
    """Takes what does not begin with a subcommand for the words of the default one, if it has that."""

    default_command = DEFAULT

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the default command's name in front where no command is named."""
        named = not args or args[0] in self.commands or args[0] in ctx.help_option_names
        if not named and DEFAULT in self.commands:
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)
