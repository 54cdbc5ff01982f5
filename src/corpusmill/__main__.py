"""The command line `corpusmill`: the commands of both packages. What a command needs is imported when it runs."""

from __future__ import annotations

import gc
import re
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer

    from corpusmill.common.errors import UserError, WorkError

EPILOG = "Start with: corpusmill init my-corpus"


def build(word: str = "") -> typer.Typer:
    """The command line: of the command `word` alone, if there is one of this name, since each takes Typer some ms."""
    import typer

    from corpusmill.ablate.command import EXAMPLE, ablate
    from corpusmill.pipeline.commands.stages import register as register_pipeline
    from corpusmill.pipeline.commands.tokenizer import SMALL_MODELS
    from corpusmill.small_models import small_models
    from corpusmill.train.commands import register as register_trainer

    app = typer.Typer(
        name="corpusmill", no_args_is_help=True, add_completion=False, epilog=EPILOG,
        help="Raw text in, a trained language model out, and an account of every step between.",
        context_settings={"help_option_names": ["-h", "--help"], "obj": {SMALL_MODELS: small_models}},
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # in 80 columns a table leaves help texts 16
    )  # fmt: skip

    def version(wanted: bool) -> None:
        if wanted:
            from importlib.metadata import version

            typer.echo(f"corpusmill {version('corpusmill')}")
            raise typer.Exit

    @app.callback()
    def options(
        version: bool = typer.Option(
            False, "--version", callback=version, is_eager=True, help="Print it and stop."
        ),
    ) -> None:
        pass

    register_pipeline(app)
    register_trainer(app)
    app.command("ablate", epilog=f"Example: {EXAMPLE}")(ablate)
    keep_alone(app, word)
    _unwrapped(app)
    return app


def keep_alone(app: typer.Typer, word: str) -> None:
    """Leave the command or group `word` in `app` alone, or all if there is none of this name."""
    commands = [command for command in app.registered_commands if command.name == word]
    groups = [group for group in app.registered_groups if group.name == word]
    if commands or groups:
        app.registered_commands, app.registered_groups = commands, groups


def _unwrapped(app: typer.Typer) -> None:
    """Have the commands' examples printed as they are: help is wrapped inside of words too, such as `--vocab-` / `size`.
    Those that are longer than a line go on after a backslash, as a shell takes them."""
    for command in app.registered_commands:
        if command.epilog and not command.epilog.startswith("\b"):  # groups are shared by all that is built
            command.epilog = f"\b\n{in_lines(command.epilog)}"
    for group in app.registered_groups:
        if group.typer_instance is not None:
            _unwrapped(group.typer_instance)


def in_lines(example: str, width: int = 76) -> str:
    """A command in lines of `width`; one that takes several is broken between its words, an option kept with its value."""
    if len(example) <= width:
        return example
    lines: list[str] = []
    for word in re.findall(r"(?:-\S+ )?(?:'[^']*'|\S+)", example):
        if lines and len(lines[-1]) + len(word) + 3 <= width:  # a blank, and room for the backslash
            lines[-1] += f" {word}"
        else:
            lines.append(f"  {word}" if lines else word)
    return " \\\n".join(lines)


def report(error: UserError | WorkError) -> int:
    """Tell the user in as few lines as the mistake has; the exit code."""
    from corpusmill.common.format import masked

    for line in masked(str(error)).splitlines() or [type(error).__name__]:
        print(f"error: {line}", file=sys.stderr)
    return error.exit_code


def main() -> None:
    """Exit codes: 0 done, 1 the work failed, 2 the command or config is wrong, 130 interrupted."""
    try:  # around the imports too: Ctrl-C may come as soon as the command is given
        from corpusmill.common.errors import UserError, WorkError

        try:
            build(*sys.argv[1:2])()
        except (UserError, WorkError) as error:
            sys.exit(report(error))
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        gc.freeze()  # what is left ends with the process, without a last search for cycles


if __name__ == "__main__":
    main()
