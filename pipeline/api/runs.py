"""Runs from a program: a recipe loaded, planned and run; questions to a finished run or to a stage's output, by folder or URL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from corpusmill.common import config as reading
from corpusmill.common.storage import Folder
from corpusmill.pipeline.api.tables import mapped, parquet_tables
from corpusmill.pipeline.engine.cluster import Workers
from corpusmill.pipeline.engine.layout import stage_folders
from corpusmill.pipeline.engine.planning.estimate import of_run
from corpusmill.pipeline.engine.preflight import preflight
from corpusmill.pipeline.engine.progress import Progress
from corpusmill.pipeline.engine.runner import Run
from corpusmill.pipeline.inspect.lineage.find import Finder
from corpusmill.pipeline.inspect.lineage.shards import parse
from corpusmill.pipeline.inspect.lineage.show import as_json, found_json
from corpusmill.pipeline.inspect.lineage.trace import Tracer, open_shards, shards_of
from corpusmill.pipeline.inspect.verify import Verified
from corpusmill.pipeline.inspect.verify import verify as check
from corpusmill.pipeline.inspect.why import why as ask
from corpusmill.schemas import recipe as schema
from corpusmill.schemas.manifest import Counts
from corpusmill.schemas.recipe import Cluster
from corpusmill.schemas.tables import LEDGER


class Finished(NamedTuple):
    """A finished run. `counts`: stage -> documents in, kept, removed, quarantined; `counters`: what else it counted."""

    url: str
    counts: dict[str, Counts]
    counters: dict[str, dict[str, int]]

    def ledger(self) -> pa.Table:
        """A row for every record (`corpusmill.schemas.tables.LEDGER`)."""
        return mapped(parquet_tables(Folder(self.url) / "ledger"), LEDGER)


class Recipe:
    """A pipeline: sources in, shards and an account of them out.

        run = Recipe.load("recipe.yaml", ["dedup.similarity=0.7"]).run()
        run.counts["dedup"].removed

    `config` is the checked recipe (`corpusmill.schemas.recipe.Recipe`).
    """

    def __init__(self, config: schema.Recipe) -> None:
        self.config = config

    @classmethod
    def load(cls, path: str | Path, settings: Sequence[str] = ()) -> Recipe:
        """Read a YAML file, with `key.key=value` settings. Raises `UserError` with a line per mistake."""
        loaded = reading.load(schema.Recipe, path, list(settings))
        return cls(loaded.importing_from(str(Path(path).resolve().parent), str(Path.cwd())))

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Recipe:
        """Check a recipe that is a mapping. Raises `UserError` with a line per mistake."""
        return cls(reading.validate(schema.Recipe, dict(config), "recipe").importing_from(str(Path.cwd())))

    def run(
        self,
        *,
        workers: int | None = None,
        scheduler: str | None = None,
        quiet: bool = True,
        replace: bool = False,
        folders: dict[str, Folder] | None = None,
    ) -> Finished:
        """Run what is not finished and valid; resumes what a killed run left.

        `workers`: processes on this machine, 0: this process, default: the recipe's; else the cores, or this process for up
        to 16 MB of text. `scheduler`: the address of a Dask cluster. `replace`: the finished run of another recipe may be
        made again in its place. `folders`: places of single stages, such as those of another run that has the same. A program that starts processes needs `if __name__ == "__main__":`. Raises `UserError` for a
        recipe that cannot run, `WorkError` for input or storage that fails.
        """
        return self._run(self.config.output_url, workers, scheduler, quiet, folders, replace)

    def run_stage(
        self, output: str, *, workers: int | None = None, quiet: bool = True, replace: bool = False
    ) -> Finished:
        """Run as the command of the recipe's last stage does: that stage's files straight in `output`."""
        folders = {n: Folder(url) for n, url in stage_folders(self.config.stage_names, output).items()}
        return self._run(output, workers, None, quiet, folders, replace)

    def _run(
        self, url: str, workers: int | None, scheduler: str | None, quiet: bool,
        folders: dict[str, Folder] | None = None, replace: bool = False,
    ) -> Finished:  # fmt: skip
        config = self.config
        if workers is not None:
            cluster = config.cluster.model_copy(update={"workers": workers})
            config = config.model_copy(update={"cluster": cluster})
        progress = Progress(quiet=quiet)
        with Workers(config.cluster, scheduler, progress) as dask:
            job = Run(config, Folder(url), dask, progress, folders, replace)
            with job.owned():
                planned = job.plan()
                job.forecast = of_run(planned, len(config.sources), dask.adapt, not Folder(url).local)
                for warning in preflight(config, Folder(url), dask, planned, job.forecast, claimed=True):
                    progress.log(f"warning: {warning}")
                manifests = job.execute(planned)
        return Finished(
            Folder(url).url, {m.stage: m.counts for m in manifests}, {m.stage: m.counters for m in manifests}
        )


_QUIET = Progress(quiet=True).log


def why(run: str | Path, document: str) -> list[dict[str, Any]]:
    """The rows of the ledger on a document, with its signals: `document` is a doc_id in hex, the input's own id or a
    locator. Raises `UserError` if there is none."""
    return ask(Folder(str(run)), document)


def trace(
    run: str | Path, address: str, *, raw: bool = True, show_redacted: bool = False
) -> list[dict[str, Any]]:
    """From tokens (`books-train-000000:2:100-120`: tar, block, tokens) back to documents, sources and characters; with
    `raw` to the bytes of the source's record, if it is still there."""
    asked = parse(address)
    tracer = Tracer(*open_shards(asked, str(run), _QUIET), raw)
    return [as_json(one, show_redacted) for one in tracer.trace(asked)]


def find(run: str | Path, document: str) -> list[dict[str, Any]]:
    """The shards, blocks and tokens that a document became: a doc_id in hex, the input's own id, a locator or a URL."""
    return [found_json(one) for one in Finder(*shards_of(str(run), _QUIET)).find(document, None, None)]


def verify(path: str | Path, *, sample: int | None = 400, workers: int = 0) -> Verified:
    """Recompute checksums and counts, and decode `sample` documents of the shards (None: all); `problems` of the result
    lists what is wrong."""
    with Workers(Cluster(workers=workers), None, Progress(quiet=True)) as scheduler:
        return check(Folder(str(path)), scheduler, sample)
