"""Decontamination: MB/s per core beside datatrove's filter, what is found of planted items, size of the index.

Text: about 20 MB of real text of six kinds, with items of GSM8K and MMLU planted in copies of some of it, edited in
case, punctuation and white space. Evaluation sets: GSM8K, MMLU, HellaSwag and BLiMP in one index; beside datatrove, the
questions and right answers of the first two. One thread; seconds are CPU seconds of this process.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench import natural
from bench.peers import DATATROVE, NotMeasured, ask, write_documents

SETS = natural.DATA / "evalsets"
INDEXED = ("blimp", "decon_mmlu_gsm8k", "hellaswag_val")  # four sets: one file holds two
SOURCES = ("books", "wiki", "speeches", "qa", "medicine", "abstracts")
PLANTED = 200  # items per edit
BESIDE = 2_000_000  # characters of text that datatrove reads too
PEER = DATATROVE._replace(script="datatrove_decontaminate.py")
EDITS: dict[str, Callable[[str], str]] = {
    "as it is": lambda text: text,
    "in capitals": str.upper,
    "punctuation gone": lambda text: "".join(c if c.isalnum() or c.isspace() else " " for c in text),
    "wrapped at every word": lambda text: "\n".join(text.split()),
    "first 70 % of the words": lambda text: " ".join(text.split()[: -(-7 * len(text.split()) // 10)]),
    "every 20th word changed": lambda text: " ".join(
        "zzz" if i % 20 == 19 else word for i, word in enumerate(text.split())
    ),
    "every 8th word changed": lambda text: " ".join(
        "zzz" if i % 8 == 7 else word for i, word in enumerate(text.split())
    ),
}


def questions() -> list[tuple[str, str]]:
    """(question, right answer) of GSM8K and MMLU, each question once, in the order of the files."""
    found: dict[str, str] = {}
    for row in natural.rows(SETS / "decon_mmlu_gsm8k"):
        if row.get("is_correct", True):
            found.setdefault(row["question"], row["answer"])
    return list(found.items())


class Ours:
    """An index over files, and the stage's search and judgement on an array of texts."""

    def __init__(self, folder: Path, against: list[str], **params: Any) -> None:
        from corpusmill.common.storage import Folder
        from corpusmill.pipeline.decontaminate import index
        from corpusmill.pipeline.decontaminate.evalsets import find_files
        from corpusmill.schemas.stages import DecontaminateParams

        self.params = DecontaminateParams(against=against, **params)
        start = time.process_time()
        self.record = index.build(Folder(folder), "bench", find_files(against), self.params)
        self.index = index.load(Folder(folder), "bench", self.params)
        self.build_seconds = time.process_time() - start

    def named(self, texts: pa.Array) -> list[str]:
        """What was found in the texts: the set and part, how much of it, and the beginning of the passage."""
        judged, lines = self._judged(texts), []
        bounds, starts, stops = judged["spans"]
        for at in np.flatnonzero(judged["acts"]).tolist():
            unit = self.index.units.slice(int(judged["unit"][at]), 1).to_pylist()[0]
            text = texts[int(judged["row"][at])].as_py()[starts[bounds[at]] : stops[bounds[at]]]
            share = f"{judged['words'][at]} of {judged['of'][at]} words"
            lines.append(f"{unit['set']} {unit['part']}, {share}: {text[:100]!r}")
        return lines

    def rows(self, texts: pa.Array) -> set[int]:
        """The texts that hold an item."""
        judged = self._judged(texts)
        return set(judged["row"][judged["acts"]].tolist())

    def _judged(self, texts: pa.Array) -> Any:
        from corpusmill.pipeline.decontaminate.matches import find_hits
        from corpusmill.pipeline.decontaminate.near_matches import judge_all

        none = np.zeros(len(self.index.table.keys), bool), np.zeros(len(self.index.seeds.unit), bool)
        return judge_all(*find_hits(texts, self.index), self.index, self.params, *none)

    def timed(self, texts: pa.Array) -> tuple[float, set[int]]:
        """(CPU seconds, rows), the better of two passes."""
        seconds = []
        for _ in range(2):
            start = time.process_time()
            found = self.rows(texts)
            seconds.append(time.process_time() - start)
        return min(seconds), found


def large(texts: list[str]) -> pa.Array:
    """Texts as the stage takes them."""
    return pa.array(texts, pa.large_string())


def measure(folder: Path) -> dict[str, Any]:
    """Speed, index, planted items, and the comparison."""
    asked = questions()
    long = [(q, a) for q, a in asked if len(q.split()) >= 13]
    step = len(long) // PLANTED
    chosen = [long[i * step] for i in range(PLANTED)]
    warm = Ours(folder / "warm", [str(SETS / "decon_mmlu_gsm8k")])
    warm.rows(large([chosen[0][0]]))
    whole = Ours(folder / "whole", [str(SETS / name) for name in INDEXED])
    whole.rows(large([chosen[0][0]]))
    speeds, natural_texts = {}, []
    for name in SOURCES:
        texts = natural.read_only(name)
        natural_texts += texts
        seconds, found = whole.timed(large(texts))
        size = sum(len(text.encode()) for text in texts)
        speeds[name] = (len(texts), size / 1e6, size / 1e6 / seconds, len(found))
    fillers = [text[:800] for text in natural_texts if len(text) > 1000]
    planted = {}
    for edit, change in EDITS.items():
        texts = [f"{fillers[i]}\n\n{change(q)}\n\n{fillers[-1 - i]}" for i, (q, _) in enumerate(chosen)]
        planted[edit] = len(whole.rows(large(texts)))
    return {
        "grams": len(whole.index.table.keys), "bytes_per_gram": whole.index.bytes_per_gram,
        "build_seconds": whole.build_seconds, "sets": whole.record.sets, "speeds": speeds, "planted": planted,
        "beside": beside(folder, asked, chosen, natural_texts),
    }  # fmt: skip


def beside(
    folder: Path, asked: list[tuple[str, str]], chosen: list[tuple[str, str]], natural_texts: list[str]
) -> Any:
    """Both tools on the same documents and items: natural text cut to 20 kB, and planted questions."""
    texts, size = [], 0
    for text in natural_texts[:: max(1, len(natural_texts) // 2000)]:
        texts.append(text[:20_000])
        size += len(texts[-1])
        if size > BESIDE:
            break
    clean = len(texts)
    texts += [f"{text[:800]}\n\n{q.upper()}\n\n{a}" for text, (q, a) in zip(texts, chosen, strict=False)]
    items = folder / "items.jsonl"
    items.write_text("".join(json.dumps({"query": q, "label": a}) + "\n" for q, a in asked), encoding="utf-8")
    path = write_documents(folder / "documents.jsonl", map(str, range(len(texts))), large(texts))
    roles = ["question=query", "answer=label"]
    size = path.stat().st_size
    rows: list[tuple[str, float | None, set[int]]] = []
    for label, threshold in (("ours, half of an item's words", 0.5), ("ours, one n-gram", 0.0)):
        ours = Ours(folder / f"beside{threshold}", [str(items)], fields=roles, threshold=threshold)
        seconds, found = ours.timed(large(texts))
        rows.append((label, seconds, found))
    try:
        answer = ask(PEER, path, items, "13")
        rows.append(("datatrove NGramsDecontFilter", answer["seconds"], set(map(int, answer["removed"]))))
    except NotMeasured as error:
        rows.append((f"datatrove: not measured, {error}", None, set()))
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    return {
        "megabytes": megabytes, "clean": clean, "planted": len(texts) - clean,
        "rows": [
            (label, seconds, sum(1 for row in found if row >= clean), sum(1 for row in found if row < clean))
            for label, seconds, found in rows
        ],
    }  # fmt: skip


def main() -> None:
    """Print Markdown tables."""
    if not natural.available() or not SETS.is_dir():
        print("not measured: the real text (../shared/data) is not beside this checkout")
        return
    with tempfile.TemporaryDirectory() as folder:
        result = measure(Path(folder))
    print(
        f"Index of four sets: {result['grams']:,} n-grams of 13 words and short items,"
        f" {result['bytes_per_gram']:.0f} bytes each in memory, built in {result['build_seconds']:.1f} CPU seconds.\n"
    )
    print("| set | items | not looked for | n-grams | boilerplate left out |\n|---|---|---|---|---|")
    for name, c in result["sets"].items():
        print(f"| {name} | {c.items:,} | {c.unused:,} | {c.ngrams:,} | {c.boilerplate:,} |")
    print(
        "\nSearch and judgement, text in memory:\n\n| text | documents | MB | MB/s per core | documents with an item |"
    )
    print("|---|---|---|---|---|")
    for name, (count, size, speed, found) in result["speeds"].items():
        print(f"| {name} | {count:,} | {size:.1f} | {speed:.0f} | {found} |")
    print(f"\n{PLANTED} questions planted in real text:\n\n| edit | found |\n|---|---|")
    for edit, found in result["planted"].items():
        print(f"| {edit} | {found / PLANTED:.1%} |")
    b = result["beside"]
    print(
        f"\nBeside {PEER.label}, GSM8K and MMLU, 13-grams: {b['clean']:,} documents of real text and {b['planted']}"
        f" with a planted question in capitals, {b['megabytes']:.1f} MB.\n"
    )
    print("| tool | MB/s per core | planted found | others named |\n|---|---|---|---|")
    for label, seconds, planted, others in b["rows"]:
        rate = f"{b['megabytes'] / seconds:.2f}" if seconds else "–"
        print(f"| {label} | {rate} | {planted} of {b['planted']} | {others} |")


if __name__ == "__main__":
    main()
