"""The loader: tokens/s of StreamingTokens beside four other loaders, from a disk and from an S3-compatible server; the
bytes and memory that it takes, the time to the first batch, its share of a training run, and how well it shuffles."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bench import _loader_peers, _loader_s3, _loader_shuffle, _loader_train
from bench._loader_ours import FAR, alone
from bench._loader_set import BATCH, BLOCK, BLOCKS, SEQUENCE, SOURCES, write_set
from bench.object_store import NoServer
from bench.peers import NotMeasured, Peer, ask

__all__ = ["measure", "write_set"]
TARS = 8  # of a source: webdataset takes tars by chance


def measure() -> dict[str, Any]:
    """All figures by subject."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for name in ("set", "rows", "peers", "train"):
            (folder / name).mkdir()
        found: dict[str, Any] = {"train": _loader_train.measure(folder / "train")}
        root, rows = write_set(folder / "set", tars=TARS, rows=folder / "rows"), folder / "rows"
        data: dict[Peer, Path] = {}
        missing: dict[Peer, str] = {}
        for peer in _loader_peers.PEERS:
            try:
                data[peer] = _loader_peers.prepare(peer, root, rows, folder / "peers")
            except NotMeasured as reason:
                missing[peer] = str(reason)
        ours, table = _loader_peers.measure(root, data)
        table += [_loader_peers.Row(peer, {}, 0.0, why) for peer, why in missing.items()]
        found |= {"ours": ours, "peers": table, "fill": alone("fill", 3)}
        found |= {"shuffle": shuffles(root, rows, data, missing, folder), "first": alone("first", root)}
        try:
            found["s3"] = _loader_s3.measure(root)
        except NoServer as reason:
            found["s3"] = str(reason)
        return found


def shuffles(
    root: str, rows: Path, data: dict[Peer, Path], missing: dict[Peer, str], folder: Path
) -> dict[str, _loader_shuffle.Shuffle | str]:
    """Name of a loader -> how it shuffled one epoch, or why that is not known; and what chance alone does."""

    def judged(file: Path) -> _loader_shuffle.Shuffle:
        return _loader_shuffle.judge(_loader_shuffle.places(np.load(file), rows))

    file = folder / "order.npy"
    alone("order", root, file)
    found: dict[str, _loader_shuffle.Shuffle | str] = {"StreamingTokens": judged(file)}
    for peer in data:
        try:
            ask(peer, "order", data[peer], file)
            found[peer.label] = judged(file)
        except NotMeasured as reason:
            found[peer.label] = str(reason)
    found |= {peer.label: why for peer, why in missing.items()}
    chance = np.random.default_rng(0).permutation(found["StreamingTokens"].sequences)
    return {**found, "(a uniform permutation)": _loader_shuffle.judge(chance)}


def first_lines(found: dict[str, list[float]], where: str) -> str:
    """Seconds to the first batch, in words."""

    def middle(name: str) -> str:
        opening, batch = median(found[name][::2]), median(found[name][1::2])
        return f"{batch:.3f} s, {opening + batch:.3f} s with opening"

    return f"| {where} | {middle('start')} | {middle('far')} | {sum(found['cold']):.3f} s |"


def main() -> None:
    """Print Markdown."""
    found = measure()
    sequences = len(SOURCES) * TARS * BLOCKS * _loader_shuffle.PER_BLOCK
    fill, mine = found["fill"], median(found["ours"].best)
    lines = [
        f"{len(SOURCES) * TARS * BLOCKS * BLOCK / 1e6:.0f} M tokens (uint16) in two sources, {sequences:,} sequences of"
        f" {SEQUENCE}, on a local disk, cached in memory; batches of {BATCH} as torch int64, medians of"
        f" {_loader_peers.ROUNDS} rounds in turn, after ten batches of warming up. All give one tensor of which tokens and"
        " labels are views. Ours mixes the sources exactly and checks every block against the index; the others check nothing;"
        " each in its own format and with 0 or 2 workers, whichever is faster: with the two sources mixed by its own means,"
        " half from each, and with one of them alone, which is less work.",
        "",
        *_loader_peers.table(found["ours"], found["peers"]),
        "",
        "As the trainer reads it: with the number and position of every token's document, and source and number of every"
        " sequence. The others know no documents.",
        "",
        f"The limit is memory: {fill['bytes_per_token']:.0f} bytes are written for a token, and 2 read. Writing these tensors"
        f" alone, in NumPy on one thread, into the same few arrays, gives {fill['tokens_per_second'] / 1e6:.0f} M tokens/s"
        f" ({fill['tokens_per_second'] * fill['bytes_per_token'] / 1e9:.1f} GB/s); ours does"
        f" {mine / fill['tokens_per_second']:.0%} of that.",
        "",
        *([f"Not measured from an S3-compatible server: {found['s3']}."] if isinstance(found["s3"], str)
          else _loader_s3.lines(found["s3"])),
        "",
        f"| time to the first batch | step 0 | resumed at step {FAR:,} | first stream of a process, with opening |",
        "|---|---|---|---:|",
        first_lines(found["first"], "local"),
        *([] if isinstance(found["s3"], str) else [first_lines(found["s3"]["first"], "S3-compatible server")]),
        "",
        _loader_train.line(found["train"]),
        "",
        "How one epoch of one source is shuffled (webdataset and datasets: tars or files, then a buffer of 1000 sequences;"
        " litdata: chunks of 33 MB, then all of a chunk; mosaicml-streaming: py1e):",
        "",
        *_loader_shuffle.table(found["shuffle"]),
    ]  # fmt: skip
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
