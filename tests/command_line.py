"""Commands in this process, as Typer's runner has them."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import typer
from typer.testing import CliRunner as Runner
from typer.testing import Result

from corpusmill.__main__ import keep_alone


class CliRunner(Runner):
    """Of the application's commands the one that is called is there, as in `corpusmill`: Typer takes long for all of them."""

    def invoke(
        self, app: typer.Typer, args: str | Sequence[str] | None = None, input: bytes | str | None = None,
        env: Mapping[str, str | None] | None = None, catch_exceptions: bool = True, color: bool = False, **extra: Any,
    ) -> Result:  # fmt: skip
        word = args[0] if args and not isinstance(args, str) else ""
        app = copy.copy(app)
        keep_alone(app, word)
        if app.registered_callback is None and [command.name for command in app.registered_commands] == [
            word
        ]:
            app.callback()(lambda: None)  # a command alone would not be called by its name
        return super().invoke(app, args, input, env, catch_exceptions, color, **extra)
