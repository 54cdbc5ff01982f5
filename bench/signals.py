"""Signals of the text in MB/s per core, beside datatrove's filters that look at the same things.

Input: the documents of `bench.filter` (five kinds of real text). All signals are measured on all of them; the
families gopher, c4 and fineweb, and datatrove's four filters, on every `EVERY`th, each as if it were alone: no
filter spares another a document. CPU seconds of one thread, after one pass over a small part (Numba compiles once;
datatrove loads its tokenizer). Ours are repeated, for one pass over the part is over too soon to measure.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bench.filter import documents
from bench.natural import DATA
from bench.peers import DATATROVE, NotMeasured, ask, write_documents

EVERY = 25
PASSES = 20  # over the part; 3 over everything
FAMILIES = ("gopher", "c4", "fineweb")
PEER = DATATROVE._replace(script="datatrove_filters.py")


def of_families(part: pa.LargeStringArray) -> dict[str, Any]:
    """The values of the three families alone: the view, and what they look at in it."""
    from corpusmill.pipeline.filter.signals.catalogue import text_specs
    from corpusmill.pipeline.filter.signals.registry import MEASURES
    from corpusmill.pipeline.filter.text.view import text_buffers, view_of

    view = view_of(*text_buffers(part))
    names = [spec.name for spec in text_specs() if spec.name.split(".")[0] in FAMILIES]
    return {name: MEASURES[name][1](view) for name in names}


def the_view(part: pa.LargeStringArray) -> Any:
    """The one pass over the bytes that all signals share."""
    from corpusmill.pipeline.filter.text.view import text_buffers, view_of

    return view_of(*text_buffers(part))


def measure() -> dict[str, Any]:
    """Megabytes, documents and CPU seconds a pass, of everything and of the part; the peer's seconds or why not."""
    from corpusmill.pipeline.filter.apply import signals_of_text
    from corpusmill.pipeline.filter.signals.catalogue import text_specs

    text = documents()["text"].combine_chunks()
    sample = text.take(pa.array(range(0, len(text), EVERY)))
    with tempfile.TemporaryDirectory() as folder:
        path = write_documents(Path(folder) / "docs.jsonl", map(str, range(len(sample))), sample)
        try:
            peer = ask(PEER, path)
        except NotMeasured as why:
            peer = str(why)
    return {
        "all": _size(text),
        "part": _size(sample),
        "signals": len(text_specs()),
        "seconds": {
            "all signals": _seconds(signals_of_text, text, 3),
            "the view alone": _seconds(the_view, text, 3),
            "gopher, c4, fineweb": _seconds(of_families, text, 3),
        },
        "on_part": _seconds(of_families, sample, PASSES),
        "peer": peer,
    }


def _size(text: pa.LargeStringArray) -> tuple[int, float]:
    return len(text), pc.sum(pc.binary_length(text)).as_py() / 1e6


def _seconds(function: Callable[[Any], Any], text: pa.LargeStringArray, passes: int) -> float:
    """CPU seconds of one pass, the fastest of them: other work on the machine only ever adds."""
    from corpusmill.pipeline.filter.text.view import spans

    parts = [text.slice(first, last - first) for first, last in spans(text)]
    function(text.slice(0, 20))
    taken = []
    for _ in range(passes):
        start = time.process_time()
        for part in parts:
            function(part)
        taken.append(time.process_time() - start)
    return min(taken)


def main() -> None:
    """Print the tables."""
    if not DATA.is_dir():
        print("not measured: the real text (../shared/data) is not beside this checkout")
        return
    found = measure()
    count, size = found["all"]
    print(f"{count:,} documents, {size:.1f} MB of real text in five kinds, one thread.\n")
    print("| signals | MB/s per core | ns per byte |\n|---|---|---|")
    for name, seconds in found["seconds"].items():
        shown = f"all {found['signals']}, as columns" if name == "all signals" else name
        print(f"| {shown} | {size / seconds:.1f} | {1e3 * seconds / size:.1f} |")
    count, size = found["part"]
    ours, peer = found["on_part"], found["peer"]
    print(f"\nEvery {EVERY}th of them: {count:,} documents, {size:.2f} MB.\n")
    print("| | MB/s per core | CPU seconds | our signals are faster by |\n|---|---|---|---|")
    print(f"| CorpusMill: signals of gopher, c4, fineweb | {size / ours:.1f} | {ours:.4f} | |")
    if isinstance(peer, str):
        print(f"| {PEER.label} | not measured: {peer} | | |")
        return
    for name, seconds in {**peer["seconds"], "the four together": sum(peer["seconds"].values())}.items():
        print(f"| {PEER.label}: {name} | {size / seconds:.3f} | {seconds:.2f} | {seconds / ours:.0f} x |")


if __name__ == "__main__":
    main()
