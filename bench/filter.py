"""The filter stage: signals, language, classifiers and all of it, in MB/s of text per core.

Input: real text of five kinds from ../shared/data (see `documents`), loaded before the clock starts. One
thread; seconds are CPU seconds of this process, after one pass over a small part (Numba compiles once, models
load once).
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"


def documents() -> pa.Table:
    """Encyclopedia, questions and answers, biomedical abstracts, news, pieces of books: about 24 MB."""
    from pipeline.filter.models import sources
    from schemas.documents import DOCUMENTS
    from schemas.ids import doc_id, text_hash

    kinds = {
        "encyclopedia": sources.encyclopedia(DATA),
        "posts": sources.posts(DATA),
        "abstracts": sources.medical_abstracts(DATA),
        "news": sources.graded_news(DATA),
        "books": sources.books(DATA),
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


def language_accuracy(model: Any) -> tuple[int, float]:
    """(sentences, share right): news sentences of 75 languages."""
    from pipeline.filter.classifiers.scores import languages
    from pipeline.filter.models.sources import json_lines

    path = next((DATA / "langid/lingua_testdata").glob("*.jsonl.gz"))
    rows = [row for row in json_lines(path) if row["kind"] == "sentences"]
    codes, _ = languages(pa.array([row["text"] for row in rows], pa.large_string()), model)
    # lid.176 knows Norwegian as `no` and does not part Bokmål; the set does.
    same = {"nb": "no"}
    right = sum(same.get(row["lang"], row["lang"]) == code for row, code in zip(rows, codes, strict=True))
    return len(rows), right / len(rows)


def measure() -> dict[str, Any]:
    """Megabytes of text, documents and CPU seconds of each part; memory in MiB; accuracy of the language."""
    from pipeline.filter.apply import signals_of_text
    from pipeline.filter.classifiers import scores
    from pipeline.filter.stage import Filter
    from pipeline.filter.text.view import spans
    from schemas.recipe import Recipe
    from schemas.storage import Folder

    docs = documents()
    text = docs["text"].combine_chunks()
    parts = [text.slice(first, last - first) for first, last in spans(text)]
    recipe = Recipe.model_validate({"name": "bench", "sources": {name: {"paths": ["-"]} for name in ("a",)}})
    stage = Filter(recipe).transform(Folder("unused"), "0")
    models = stage.models

    def windows(part: pa.LargeStringArray) -> Any:
        return scores.windows(part.to_pylist())

    def classify(name: str) -> Callable[[pa.LargeStringArray], Any]:
        return lambda part: scores.window_scores(windows(part)[0], models[name], stage.labels[name])

    work: dict[str, Callable[[pa.LargeStringArray], Any]] = {
        "all signals of the text": signals_of_text,
        "language (first 2,000 characters)": lambda part: scores.languages(part, models["language"]),
        "toxicity, with its windows": classify("toxicity"),
        "quality, with its windows": classify("quality"),
    }
    stage(docs.slice(0, 50))
    before = _memory()
    seconds = {name: _seconds(function, parts) for name, function in work.items()}
    seconds["the whole stage, memory to memory"] = _seconds(stage, [docs])
    sentences, right = language_accuracy(models["language"])
    return {
        "megabytes": pc.sum(pc.binary_length(text)).as_py() / 1e6,
        "documents": len(docs),
        "seconds": seconds,
        "memory_before": before,
        "memory_peak": _memory(),
        "sentences": sentences,
        "language_accuracy": right,
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
        f"\nPeak memory {result['memory_peak']:.0f} MiB, {result['memory_before']:.0f} of it before the "
        f"work (text, "
        f"models, compiled kernels). Language: {result['language_accuracy']:.1%} of "
        f"{result['sentences']:,} news "
        "sentences in 75 languages right."
    )


def _seconds(function: Callable[[Any], Any], parts: list[Any]) -> float:
    start = time.process_time()
    for part in parts:
        function(part)
    return time.process_time() - start


def _memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
