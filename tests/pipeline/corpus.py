"""Document tables, partitions and contexts for the tests of the stages that look across partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.common.ids import doc_id, text_hash
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.publish import publish_table
from corpusmill.pipeline.engine.stage import Context, Item, Partition, Result
from corpusmill.schemas.recipe import Recipe
from corpusmill.schemas.tables import DOCUMENTS


def documents(texts: Iterable[str], source: str = "web", clusters: dict[int, str] | None = None) -> pa.Table:
    """A table of one source; `clusters` maps rows to the name of their duplicate cluster."""
    clusters = clusters or {}
    rows = [
        {
            "doc_id": doc_id(source, f"a#{i}"), "source": source, "locator": f"a#{i}", "text": text,
            "text_hash": text_hash(text),
            "cluster_id": doc_id("cluster", clusters[i]) if i in clusters else None,
        }
        for i, text in enumerate(texts)
    ]  # fmt: skip
    return pa.Table.from_pylist([{n: row.get(n) for n in DOCUMENTS.names} for row in rows], schema=DOCUMENTS)


@lru_cache(maxsize=4096)
def words(count: int, seed: int, alphabet: str = "abcdefghij é日👩") -> str:
    """Pseudo-random text in which words recur."""
    draw = np.random.default_rng(seed)
    stems = [
        "".join(alphabet[place] for place in row) for row in draw.integers(0, len(alphabet), (40, 3)).tolist()
    ]
    return " ".join(stems[place] for place in draw.integers(0, 40, count).tolist())


def recipe(sources: Sequence[str] = ("web",), **stages: Any) -> Recipe:
    """A recipe with these stages' parameters."""
    return Recipe.model_validate(
        {"name": "test", "sources": {s: {"paths": ["x"]} for s in sources}, **stages}
    )


def partitions(folder: Folder, docs: pa.Table, count: int, shuffle: int | None = None) -> list[Partition]:
    """`docs` cut into `count` published partitions; `shuffle` seeds another order of the documents."""
    if shuffle is not None:
        docs = docs.take(np.random.default_rng(shuffle).permutation(len(docs)))
    edges = np.linspace(0, len(docs), count + 1).astype(int)
    parts = []
    for number in range(count):
        table = docs.slice(edges[number], edges[number + 1] - edges[number])
        file = publish_table(folder, f"documents/{number:05d}.parquet", table)
        size = pc.sum(pc.binary_length(table["text"])).as_py() or 0
        parts.append(Partition(f"{number:05d}", folder, len(table), size, file.xxh3))
    return parts


class Here:
    """A scheduler that works in this process; `order` permutes the order of the tasks, `stop_after` kills."""

    count = 1

    def __init__(self, reverse: bool = False, stop_after: int | None = None) -> None:
        self.reverse, self.stop_after, self.done = reverse, stop_after, 0

    def map(
        self,
        function: Callable[[Item], Result],
        items: Sequence[Item],
        label: str,
        sizes: Sequence[int] | None = None,
    ) -> list[Result]:
        results: dict[int, Result] = {}
        for index in sorted(range(len(items)), reverse=self.reverse):
            if self.stop_after is not None and self.done == self.stop_after:
                raise KeyboardInterrupt
            self.done += 1
            results[index] = function(items[index])
        return [results[index] for index in range(len(items))]

    def beside(self, work: Callable[[], Any]) -> Callable[[], Any]:
        result = work()
        return lambda: result

    def close(self, last: Callable[[], Result]) -> list[Result]:
        return []


def context(
    run: Folder, made: Recipe, stage: str, parts: Sequence[Partition], scheduler: Any = None
) -> Context:
    """The context of a global stage of a run; earlier stages are where the runner puts them."""
    previous = {name: run / name for name in ("redact", "split", "tokenizer")}
    return Context(
        made, run, run / {"shard": "shards"}.get(stage, stage), parts, previous, scheduler or Here()
    )


def contents(folder: Path, without: str = "scratch/") -> dict[str, bytes]:
    """Every file below a folder, but for scratch."""
    files = {str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}
    return {name: data for name, data in files.items() if not name.startswith(without)}
