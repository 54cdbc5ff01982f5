"""Questions to a finished run, or to a stage's output: folders or URLs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.cluster import Workers
from corpusmill.pipeline.engine.progress import Progress
from corpusmill.pipeline.inspect.lineage.find import Finder
from corpusmill.pipeline.inspect.lineage.shards import parse
from corpusmill.pipeline.inspect.lineage.show import as_json, found_json
from corpusmill.pipeline.inspect.lineage.trace import Tracer, open_shards, shards_of
from corpusmill.pipeline.inspect.verify import Verified
from corpusmill.pipeline.inspect.verify import verify as check
from corpusmill.pipeline.inspect.why import why as ask
from corpusmill.schemas.recipe import Cluster

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
