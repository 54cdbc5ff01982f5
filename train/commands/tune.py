"""`corpusmill lr-find` and `corpusmill search`; run as a module, one trial of a search."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer

from corpusmill.train.commands.options import Config, Json, print_json, print_table, setting


def lr_find(
    config: Config,
    low: Annotated[float, typer.Option(help="the first learning rate")] = 1e-6,
    high: Annotated[float, typer.Option(help="the last learning rate")] = 1.0,
    steps: Annotated[int, typer.Option(min=2, help="steps from low to high")] = 100,
    factor: Annotated[
        float, typer.Option(help="stop when the loss exceeds its minimum by this factor")
    ] = 1.5,
    out: Annotated[
        str | None, typer.Option(help="folder for lr-find.json and lr-find.html; default runs/<name>-lr-find")
    ] = None,
    set_: Annotated[list[str] | None, setting("optimizer.kind=lion")] = None,
    json_: Json = False,
) -> None:
    """A range test: the learning rate rises until the loss blows up; rates to start with."""
    from corpusmill.common.config import load
    from corpusmill.common.errors import UserError
    from corpusmill.common.storage import Folder
    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.tools.tune.lr_find import range_test, tables

    if not 0 < low < high:
        raise UserError(f"--low {low:g} --high {high:g}: low must be above 0 and below high")
    if factor <= 1:
        raise UserError(f"--factor {factor:g}: must be above 1")
    found = load(TrainConfig, config, set_)
    folder = Folder(out or f"runs/{found.name}-lr-find")
    result = range_test(found, low, high, steps, folder, factor)
    if json_:
        print_json(result)
        return
    for title, lines in tables(result):
        print_table(lines, title)
    typer.echo(f"the curve: {folder / 'lr-find.html'}", err=True)


def search(
    config: Annotated[str, typer.Argument(metavar="CONFIG", help="a search config (.yaml)")],
    set_: Annotated[list[str] | None, setting("trials=50")] = None,
    json_: Json = False,
) -> None:
    """Try settings of a training config: grid, random, TPE, successive halving, population-based."""
    from corpusmill.common.config import load
    from corpusmill.schemas.search import SearchConfig
    from corpusmill.train.log.sinks import log_line
    from corpusmill.train.tools.tune.report import tables
    from corpusmill.train.tools.tune.search import search as work

    try:
        result = work(config, set_, log_line)
    except KeyboardInterrupt:
        log_line("stopped; run the same command to continue")
        raise SystemExit(130) from None
    if json_:
        print_json(result)
        return
    for title, lines in tables(load(SearchConfig, config, set_), result):
        print_table(lines, title)
    log_line(
        f"plots: {result['output']}/search.html; to train with the best: corpusmill train {result.get('best_config')}"
    )


def trial() -> None:
    """A process with the arguments FOLDER CONFIG --set ...: train; stop if standard input ends."""
    from corpusmill.train.commands.train import main
    from corpusmill.train.tools.tune.trial import hold

    def end_with_parent() -> None:
        os.read(0, 1)  # not through sys.stdin, whose lock would be held when the process ends
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end_with_parent, daemon=True).start()
    folder, *arguments = sys.argv[1:]
    lock = hold(Path(folder) / "lock", wait=True)  # a trial of a search that was killed may be saving still
    sys.argv = ["train", *arguments]
    with lock:
        main()
