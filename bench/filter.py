"""The filter stage: signals, classifiers, all of it, and fused with redaction, in MB/s of text per core.

Input: real text of five kinds from ../shared/data (see `documents`), loaded before the clock starts; for the fused
part, one published Parquet partition of it. One thread; seconds are CPU seconds of this process, after one pass over
a small part (Numba compiles once, models load once).
"""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.natural import DATA


def documents() -> pa.Table:
    """Encyclopedia, questions and answers, biomedical abstracts, news, pieces of books: about 24 MB."""
    from corpusmill.common.ids import doc_id, text_hash
    from corpusmill.schemas.tables import DOCUMENTS
    from tools import labelled_sources

    kinds = {
        "encyclopedia": labelled_sources.encyclopedia(DATA),
        "posts": labelled_sources.posts(DATA),
        "abstracts": labelled_sources.medical_abstracts(DATA),
        "news": labelled_sources.graded_news(DATA),
        "books": labelled_sources.books(DATA),
    }
    rows = [
        {
            "doc_id": doc_id(source, str(row)),
            "source": source,
            "locator": str(row),
            "text": text,
            "text_hash": text_hash(text),
        }
        for source, texts in kinds.items()
        for row, text in enumerate(texts)
    ]
    return pa.Table.from_pylist(rows, schema=DOCUMENTS).combine_chunks()


def by_library(texts: list[str], model: Any) -> list[Any]:
    """What the kernels replace: the fastText library asked one string at a time."""
    from corpusmill.pipeline.filter.classifiers import fasttext_model

    return [fasttext_model.predict(model, text.replace("\n", " "), 1) for text in texts]


def fused(docs: pa.Table, keep_all: bool) -> tuple[float, int]:
    """(CPU seconds, bytes of text that reach `redact`) of one partition through `filter` and `redact` as a run does
    it: Parquet in, Parquet out. `keep_all`: everything is measured and nothing removed."""
    from corpusmill.common.storage import Folder
    from corpusmill.pipeline.engine.stage import Outcome
    from corpusmill.pipeline.engine.tasks import Step, as_partition, publish_outcome, run_steps
    from corpusmill.schemas.stages import RedactParams
    from corpusmill.schemas.tables import DECISIONS

    # Without the set of what other documents hold, which is collected over all of them first: `bench redact`.
    alone = _recipe(keep_all).model_copy(update={"redact": RedactParams(everywhere=[])})
    recipe = alone.model_dump_json()
    with tempfile.TemporaryDirectory() as place:
        root = Folder(place)
        ingest = Step("ingest", "0", root / "ingest")
        seconds, left = 0.0, 0
        for number, table in enumerate((docs.slice(0, 50), docs)):  # the first compiles and loads
            outcome = Outcome(table, DECISIONS.empty_table(), None, {})
            published = publish_outcome(ingest, str(number), "0", len(table), 0, outcome, {}, 0.0)
            steps = [Step(name, "0", root / name) for name in ("filter", "redact")]
            start = time.process_time()
            manifests = run_steps(recipe, steps, as_partition(ingest.folder, published))
            seconds, left = time.process_time() - start, manifests[0].counts.bytes_kept
    return seconds, left


def measure() -> dict[str, Any]:
    """Megabytes of text, documents and CPU seconds of each part; memory in MiB; the library's share of the text."""
    from corpusmill.common.storage import Folder
    from corpusmill.pipeline.filter.apply import signals_of_text
    from corpusmill.pipeline.filter.classifiers import fasttext_model, scores
    from corpusmill.pipeline.filter.stage import Filter
    from corpusmill.pipeline.filter.text.view import spans
    from corpusmill.pipeline.filter.toxicity.scores import measured as labels_of

    docs = documents()
    text = docs["text"].combine_chunks()
    parts = [text.slice(first, last - first) for first, last in spans(text)]
    stage = Filter(_recipe()).transform(Folder("unused"), "0")
    models = stage.models
    language, toxicity = models.language, models.toxicity
    assert language is not None and toxicity is not None

    def classify(name: str) -> Callable[[pa.LargeStringArray], Any]:
        model, label, section, _ = models.classifiers[name]
        return lambda part: scores.measured(name, scores.reading(part, section.input), model, label)

    def all_models(part: pa.LargeStringArray) -> Any:
        columns = models.languages(part)
        return columns | models.scores(part, columns, np.ones(len(part), np.bool_))

    work: dict[str, Callable[[pa.LargeStringArray], Any]] = {
        "all signals of the text": signals_of_text,
        "language (8 windows of 200 characters), reading included": lambda part: scores.languages(
            part, language, known=models.profile
        ),
        "toxicity of five labels by window and by sentence, reading included": lambda part: labels_of(
            part, *toxicity
        ),
        "quality, reading included": classify("quality"),
        "language, toxicity and quality together": all_models,
    }
    stage(docs.slice(0, 50))
    before = _memory()
    seconds = {name: _seconds(function, parts) for name, function in work.items()}
    seconds["the whole stage, memory to memory"] = _seconds(stage, [docs])
    peak = _memory()
    for keep_all in (False, True):
        took, left = fused(docs, keep_all)
        name = f"filter and redact (each document by itself) fused, Parquet to Parquet, {left / 1e6:.1f} MB reach redact"
        seconds[name] = took
    file = fasttext_model.shipped(fasttext_model.SHIPPED["quality"])
    library = fasttext_model.load(file.path, file.xxh3)
    sample = text.take(pa.array(range(0, len(text), 10)))
    whole = sum(len(one.encode()) for one in sample.to_pylist()) / 1e6
    peer = whole / _seconds(lambda texts: by_library(texts, library), [sample.to_pylist()])
    return {
        "megabytes": pc.sum(pc.binary_length(text)).as_py() / 1e6,
        "documents": len(docs),
        "seconds": seconds,
        "memory_before": before,
        "memory_peak": peak,
        "library": peer,
    }


def main() -> None:
    """Print the table."""
    if not DATA.is_dir():
        print("not measured: the real text (../shared/data) is not beside this checkout")
        return
    result = measure()
    size = result["megabytes"]
    print(f"{result['documents']:,} documents, {size:.1f} MB of real text in five kinds, one thread.\n")
    print("| part | MB/s per core | documents/s | CPU seconds |\n|---|---|---|---|")
    for name, seconds in result["seconds"].items():
        print(f"| {name} | {size / seconds:.1f} | {result['documents'] / seconds:,.0f} | {seconds:.2f} |")
    print(
        f"\nPeak memory of the stage {result['memory_peak']:.0f} MiB, {result['memory_before']:.0f} of it before the"
        " work (text, models, compiled kernels). The fastText library, asked for the quality of the same texts as"
        f" they stand, one Python string each, without windows: {result['library']:.1f} MB/s."
    )


def _recipe(keep_all: bool = False) -> Any:
    from corpusmill.schemas.recipe import Recipe

    recipe: dict[str, Any] = {"name": "bench", "sources": {"a": {"paths": ["-"]}}}
    if keep_all:
        recipe["filter"] = {"rules": [], "language": {"threshold": 0.0}, "toxicity": {}}
    return Recipe.model_validate(recipe)


def _seconds(function: Callable[[Any], Any], parts: list[Any]) -> float:
    start = time.process_time()
    for part in parts:
        function(part)
    return time.process_time() - start


def _memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
