"""What `corpusmill evaluate` prints: tables of an evaluation, and what its n-gram models counted."""

from __future__ import annotations

from typing import Any

KINDS = ("bigram", "trigram")
SHORT = {"trained_on": "seen", "all": "all"}  # the tokens of n-gram models, in the heading of a column
TOKENS = {"trained_on": "seen: tokens that the run was trained on", "all": "all: tokens of the train splits"}


def table(result: dict[str, Any]) -> list[list[str]]:
    """Heading and rows of `result`: the model's loss beside that of unigram models."""
    lines = [["source", "tokens", "loss", "unigram", "unigram of source", "perplexity", "unigram"]]
    for name, row in _rows(result):
        unigram, own = row["unigram"], row["unigram_source"]
        lines.append(
            [
                name, f"{row['tokens']:,}", f"{row['loss']:.3f}", f"{unigram['loss']:.3f}",
                f"{own['loss']:.3f}" if own else "", f"{row['perplexity']:.1f}", f"{unigram['perplexity']:.1f}",
            ]
        )  # fmt: skip
    return lines


def bits_table(result: dict[str, Any]) -> list[list[str]]:
    """Heading and rows of `result`: bits per byte of the model, of the unigram model and of the n-gram models."""
    shown = [which for which, about in result["ngrams"].items() if "missing" not in about]
    lines = [
        [
            "source",
            "model",
            "95 %",
            "unigram, all",
            *(f"{kind}, {SHORT[which]}" for which in shown for kind in KINDS),
        ]
    ]
    for name, row in _rows(result):
        beside = [row["ngrams"][which][kind] for which in shown for kind in KINDS]
        figures = [f"{cell['bits_per_byte']:.3f}" for cell in (row["unigram"], *beside)]
        lines.append([name, f"{row['bits_per_byte']:.3f}", _ends(row["interval"]), *figures])
    mean = result["macro"]["interval"]
    if mean:
        lines.append(["mean of sources", f"{mean['value']:.3f}", _ends(mean), *[""] * (len(lines[0]) - 3)])
    return lines


def reading(result: dict[str, Any]) -> str:
    """How the text was read, in words."""
    window, stride = result["window"], result["stride"]
    rows = "without overlap" if stride == window else f"one every {stride:,}"
    ends = "ends of documents are scored"
    if result.get("end_of_document") == "given":
        ends = (
            "each word is hidden once, and ends of documents are given: figures compare masked models alone"
        )
    return f"rows of {window:,} tokens, {rows}; {ends}; intervals over documents"


def _ends(interval: dict[str, Any] | None) -> str:
    if interval is None or interval["low"] is None:
        return "–"
    return f"{interval['low']:.3f} to {interval['high']:.3f}"


def ngram_notes(result: dict[str, Any]) -> list[str]:
    """What the n-gram models of `bits_table` counted, in words."""
    lines = []
    for which, about in result["ngrams"].items():
        if "missing" in about:
            lines.append(f"{TOKENS[which]}: no n-gram models: {about['missing']}")
        elif about["tokens"] < about["of"]:
            lines.append(
                f"{TOKENS[which]}, {about['tokens']:,} of {about['of']:,}, spread evenly (--ngram-tokens)"
            )
        else:
            lines.append(f"{TOKENS[which]}, {about['tokens']:,}")
    return lines


def _rows(result: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The rows of a table: each source, and all together."""
    return [*result["sources"].items(), ("all sources", result["all_sources"])]
