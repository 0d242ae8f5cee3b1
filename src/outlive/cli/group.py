"""The `outlive` command as a whole: a command line that is wrong is told of in the form of every other error."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NoReturn, cast

import typer
from typer.core import TyperGroup

from outlive.cli.screen import say

# Typer carries a Click of its own, or uses the one that is installed: the base of all that it finds wrong.
_WRONG = cast("type[typer.BadParameter]", typer.BadParameter.__mro__[2])


class Verbs(TyperGroup):
    """The group of all verbs."""

    def main(
        self, args: Sequence[str] | None = None, prog_name: str | None = None, complete_var: str | None = None,
        standalone_mode: bool = True, windows_expand_args: bool = True, **extra: Any,
    ) -> NoReturn:  # fmt: skip
        """Run a command line and exit with its code."""
        try:
            code: object = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
        except _WRONG as error:
            code = _complain(error)
        sys.exit(code if isinstance(code, int) else 0)


def _complain(error: typer.BadParameter) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error, file=sys.stderr)
        return 2
    # What a verb itself refuses names the option.
    bare = (getattr(error, "param", ""), getattr(error, "param_hint", "")) == (None, None)
    said: str = error.message if bare else error.format_message()
    say(f"error: {said.replace(': Value error, ', ': ')}")
    if error.ctx is not None:
        say(f"hint: `{error.ctx.command_path} --help` tells how it is typed")
    return error.exit_code
