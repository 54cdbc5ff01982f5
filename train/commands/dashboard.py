"""`corpusmill dashboard`."""

from __future__ import annotations

from typing import Annotated

import typer

from corpusmill.train.commands.options import Json, Run, print_json


def dashboard(
    run: Run,
    out: Annotated[
        str | None, typer.Option(help="file or URL of the page; default: dashboard.html in the run's folder")
    ] = None,
    watch: Annotated[
        float | None, typer.Option(min=1, help="write it again every so many seconds until the run is done")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="override, such as output=s3://b/run"),
    ] = None,
    json_: Json = False,
) -> None:
    """One HTML page of a run, live while it trains: losses, schedule, norms, speed, the guard's events."""
    from corpusmill.train.log.dashboard import write, write_until_done
    from corpusmill.train.run_folder import open_run

    config, folder = open_run(run, set_)
    result = write_until_done(config, folder, out, watch) if watch else write(config, folder, out)
    if json_:
        print_json(result)
    else:
        typer.echo(f"{result['page']}: {result['rows']:,} rows up to step {result['step']:,}")
