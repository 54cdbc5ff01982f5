"""Commands in this process, as Typer's runner has them."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import typer
from typer.testing import CliRunner as Runner
from typer.testing import Result


class CliRunner(Runner):
    """Of the application's commands the one that is called is there, as in `corpusmill`: all of them take Typer 0.2 s."""

    def invoke(
        self, app: typer.Typer, args: str | Sequence[str] | None = None, input: bytes | str | None = None,
        env: Mapping[str, str | None] | None = None, catch_exceptions: bool = True, color: bool = False, **extra: Any,
    ) -> Result:  # fmt: skip
        word = args[0] if args and not isinstance(args, str) else ""
        commands = [command for command in app.registered_commands if command.name == word]
        groups = [group for group in app.registered_groups if group.name == word]
        if commands or groups:
            app = copy.copy(app)
            app.registered_commands, app.registered_groups = commands, groups
            if app.registered_callback is None:
                app.callback()(lambda: None)  # a command alone would not be called by its name
        return super().invoke(app, args, input, env, catch_exceptions, color, **extra)
