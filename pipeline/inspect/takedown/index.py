"""Documents out of an index of `dedup`: who they were, which documents stay now in their place, which shards hold them."""

from __future__ import annotations

from json import loads as load_json
from typing import Any

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup.banding import Banding
from corpusmill.pipeline.dedup.deduplication import Deduplication
from corpusmill.pipeline.dedup.index.change import NobodyNamed
from corpusmill.pipeline.dedup.index.index_file import read_index
from corpusmill.pipeline.dedup.quality.summary import publish_json
from corpusmill.pipeline.dedup.stage import Dedup
from corpusmill.pipeline.engine.cluster import Workers
from corpusmill.pipeline.engine.progress import Progress
from corpusmill.pipeline.engine.publish import publish_table
from corpusmill.pipeline.engine.requested_documents import read_names
from corpusmill.pipeline.engine.stage import Context
from corpusmill.pipeline.inspect.locate import holding
from corpusmill.pipeline.shard.read import open_set
from corpusmill.schemas.dedup import DedupParams
from corpusmill.schemas.recipe import Cluster, Recipe

FINISHED = "takedown.json"  # written when all else is


def take_down(
    index: str | None, file: str, output: str, shards: str | None, workers: int | None, address: str | None,
    quiet: bool,
) -> dict[str, Any]:  # fmt: skip
    """Take the documents that `file` names out of an index; what follows is published in `output`.

    `takedown.parquet`: who they were; `changes.parquet`: documents that stay now in their place; with `shards`,
    `shards.parquet`: the blocks and texts that hold them. Raises `UserError` if there is no index, or nothing is found.
    """
    if index is None:
        raise UserError("--takedown: give the index too, with --index DIR")
    found = read_index(Folder(index))
    if found is None:
        raise UserError(f"{index}: no index there; `corpusmill dedup IN OUT --index {index}` makes one")
    named = read_names(Folder(file))
    if shards is not None:
        open_set(Folder(shards))  # a wrong folder is refused before anything is done
    params = DedupParams(**found.params, index=index)
    sources = {name: {"paths": ["-"], "priority": rank} for name, rank in found.priorities.items()}
    recipe = Recipe.model_validate({"name": "takedown", "sources": sources})
    progress, out = Progress(quiet=quiet), Folder(output)
    with Workers(Cluster(workers=workers), address, progress) as scheduler:
        context = Context(recipe, out, out, [], {}, scheduler, progress.log)
        run = Deduplication(context, params, Banding(found.bands, found.rows), Dedup.version, named)
        assert run.change is not None
        done = _finished(out, found.generation, run.change.key)
        if done is not None:  # all is published: what a kill left of the last step is done
            run.change.forget()
            return {"output": out.url, **done}
        try:
            _, counters = run.run()
        except NobodyNamed as error:
            raise UserError(f"{file}: {error}") from None
        assert run.change.taken is not None
        taken = run.change.taken
        publish_table(out, "takedown.parquet", taken)
        result: dict[str, Any] = {"named": len(named), "taken": len(taken), "counters": counters}
        if shards is not None:
            held = holding(Folder(shards), taken["doc_id"].to_pylist(), scheduler)
            publish_table(out, "shards.parquet", held)
            result["shards"] = sorted(set(held["shard"].to_pylist()))
    (out / "scratch").delete()
    finished = {"change": run.change.key, "generation": run.change.generation, "result": result}
    publish_json(out, FINISHED, finished)
    run.change.forget()
    return {"output": out.url, **result}


def _finished(out: Folder, generation: int, change: str) -> dict[str, Any] | None:
    """The result of the same takedown, if it is the last change of the index and all of it is published."""
    try:
        found = load_json((out / FINISHED).read())
    except (FileNotFoundError, ValueError):
        return None
    same = found.get("change") == change and found.get("generation") == generation
    return dict(found["result"]) if same else None
