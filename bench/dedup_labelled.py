"""Precision, recall and F1 on labelled near-copies: the stage beside datatrove and text-dedup at their defaults.

A pair counts as found when the tool puts the two documents in one cluster, of which it keeps one: every pair of
a cluster counts, right or wrong, so that a chain of copies costs precision where its ends are not alike. All three
name their clusters: ours in `clusters.parquet`, datatrove's with its option to save their ids, which
changes nothing else, text-dedup's in the union-find that its command leaves. `removed` are the documents gone.

In McCormick's articles the duplicates are those that its authors planted and labelled, nearly identical. In the
harder set, copies lie evenly from 0.6 to 0.95 of exact Jaccard (5-word shingles, computed pair by pair by
code of the bench), among passages without a copy and news articles rewritten at three reading levels; a pair is a
duplicate at 0.8 and above, and once more at 0.7 and above, which is the threshold that text-dedup's defaults
state and where datatrove's 14 bands of 8 bend. Neither of the two checks a pair before it removes. What a word is
differs a little between the tools and the bench, so that a pair at the very threshold may fall on either side.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench import corpus, dedup_run, labelled, natural, peers
from bench.labelled import Labelled, Scores
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.publish import read_table

SIZES = (100, 1_000, 2_500)
OURS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("CorpusMill, defaults (0.8)", {}),
    ("CorpusMill, similarity 0.7", {"similarity": 0.7}),
)
PEERS = (peers.DATATROVE, peers.TEXT_DEDUP)
BINS = ((0.6, 0.65), (0.65, 0.7), (0.7, 0.75), (0.75, 0.8), (0.8, 0.85), (0.85, 0.9), (0.9, 0.96))
Found = dict[str, Any]  # tool -> {"clusters", "removed"}, or the reason why there is none


def ours(texts: dict[str, str], params: dict[str, Any]) -> dict[str, Any]:
    """Clusters, removed ids, and for each of these the one that stays for it, of the stage."""
    with tempfile.TemporaryDirectory() as name:
        root = Folder(name)
        names = list(texts)
        array = pa.array(list(texts.values()), pa.large_string())
        part = corpus.publish(root / "in", "00000", ["labelled"] * len(names), names, array)
        dedup_run.run(root, [part], ["labelled"], params)
        ids = dict(zip(part.read(["doc_id"])["doc_id"].to_pylist(), names, strict=True))
        table = read_table(root / "out/clusters.parquet")
        kept = read_table(root / "out/documents/00000.parquet", columns=["doc_id"])["doc_id"].to_pylist()
    clusters: dict[bytes, list[str]] = {}
    for cluster, member in zip(table["cluster_id"].to_pylist(), table["doc_id"].to_pylist(), strict=True):
        clusters.setdefault(cluster, []).append(ids[member])
    left = {ids[member] for member in kept}
    stays = zip(table["doc_id"].to_pylist(), table["survivor"].to_pylist(), strict=True)
    return {
        "clusters": list(clusters.values()), "removed": [name for name in names if name not in left],
        "survivors": {ids[gone]: ids[other] for gone, other in stays if ids[gone] not in left},
    }  # fmt: skip


def find(texts: dict[str, str], own: Sequence[tuple[str, dict[str, Any]]] = OURS) -> Found:
    """What every tool makes of the same documents; `own`: parameters of ours, by name."""
    found: Found = {name: ours(texts, params) for name, params in own}
    with tempfile.TemporaryDirectory() as folder:
        array = pa.array(list(texts.values()), pa.large_string())
        file = peers.write_documents(Path(folder) / "documents.jsonl", texts, array)
        for peer in PEERS:
            try:
                found[peer.label] = peers.ask(peer, "clusters", file)
            except peers.NotMeasured as error:
                found[peer.label] = str(error)
    return found


def measure() -> dict[str, Any]:
    """`articles`: size -> (set, found); `planted`: set, exact similarities, found."""
    articles = {}
    for size in SIZES:
        some = labelled.mccormick(size)
        articles[size] = some, find(some.texts)
    hard, exact = labelled.planted()
    return {"articles": articles, "planted": (hard, exact, find(hard.texts))}


def main() -> None:
    """Print the tables."""
    if not natural.available():
        print("not measured: the labelled sets (../shared/data) are not beside this checkout")
        return
    result = measure()
    _, judged, sets = (__doc__ or "").split("\n\n")
    print(" ".join(judged.split()) + "\n\n" + " ".join(sets.split()) + "\n")
    print(
        "| McCormick's articles | tool | precision | recall | F1 | removed |\n|---|---|---:|---:|---:|---:|"
    )
    for size, (some, found) in result["articles"].items():
        for tool, answer in found.items():
            print(f"| {size:,}, {len(some.duplicates)} pairs | {tool} | {_row(answer, some)} |")
    hard, exact, found = result["planted"]
    print(f"\nThe harder set: {len(hard.texts):,} documents, {len(hard.controls):,} control pairs.\n")
    print("| duplicate from | tool | precision | recall | F1 | control pairs found | removed |")
    print("|---|---|---:|---:|---:|---:|---:|")
    for least in (0.8, 0.7):
        truth = {pair for pair, value in exact.items() if value >= least}
        for tool, answer in found.items():
            print(
                f"| {least}: {len(truth)} pairs | {tool} | {_row(answer, hard._replace(duplicates=truth), True)} |"
            )
    print("\nShare of the pairs found, by exact Jaccard:\n")
    counts = [sum(low <= value < high for value in exact.values()) for low, high in BINS]
    heads = [f"{low:.2f} to {high:.2f} ({n})" for (low, high), n in zip(BINS, counts, strict=True)]
    print("| tool | " + " | ".join(heads) + " |\n|---|" + "---:|" * len(BINS))
    for tool, answer in found.items():
        if isinstance(answer, str):
            continue
        pairs = labelled.pairs_of(answer["clusters"])
        hits = [sum(low <= exact[key] < high for key in pairs if key in exact) for low, high in BINS]
        print(
            f"| {tool} | "
            + " | ".join(f"{a / max(n, 1):.2f}" for a, n in zip(hits, counts, strict=True))
            + " |"
        )


def _row(answer: Any, some: Labelled, controls: bool = False) -> str:
    if isinstance(answer, str):
        return f"not measured: {answer} | | | " + ("| |" if controls else "|")
    pairs = labelled.pairs_of(answer["clusters"])
    scores: Scores = labelled.score(pairs, some.duplicates)
    cells = [f"{value:.3f}" for value in (scores.precision, scores.recall, scores.f1)]
    if controls:
        cells.append(str(len(pairs & some.controls)))
    return " | ".join([*cells, str(len(answer["removed"]))])


if __name__ == "__main__":
    main()
