"""Named variants of rules: do they decide as the tools do, and how far do the tools agree among themselves?

datatrove's four filters run in an environment of their own on real text of 14 kinds (`_parity_texts.py`); each of its
decisions, and the rule that it gives as the reason, is compared with that of our variant. The tables are written into
`docs/parity.md`.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench._parity_texts import texts
from bench.natural import available
from bench.peers import DATATROVE, ROOT, NotMeasured, ask, write_documents

PAGE = ROOT / "docs/parity.md"
BEGIN, END = "<!-- begin: python -m bench parity -->", "<!-- end -->"
FILTERS = DATATROVE._replace(script="datatrove_decisions.py")
REPETITION_RULES = 13  # of gopher@datatrove, which begins with them
# filter -> (its name, our variant, the set without a tool's name)
COMPARED = {
    "quality": ("GopherQualityFilter", "gopher@datatrove", "gopher_quality"),
    "repetition": ("GopherRepetitionFilter", "gopher@datatrove", "gopher_repetition"),
    "c4": ("C4QualityFilter", "c4@datatrove", "c4"),
    "fineweb": ("FineWebQualityFilter", "fineweb@datatrove", "fineweb"),
}
REASONS = {
    "gopher_short_doc": "word_count_min", "gopher_long_doc": "word_count_max",
    "gopher_below_avg_threshold": "mean_word_length_min", "gopher_above_avg_threshold": "mean_word_length_max",
    "gopher_too_many_hashes": "hash_ratio_max", "gopher_too_many_ellipsis": "ellipsis_ratio_max",
    "gopher_too_many_bullets": "bullet_lines_max", "gopher_too_many_end_ellipsis": "ellipsis_lines_max",
    "gopher_below_alpha_threshold": "alpha_words_min", "gopher_enough_stop_words": "stop_words_min",
    "dup_para_frac": "dup_para_frac_max", "dup_para_char_frac": "dup_para_chars_max",
    "dup_line_frac": "dup_line_frac_max", "dup_line_char_frac": "dup_line_chars_max",
    **{f"top_{n}_gram": f"top_{n}_gram_max" for n in (2, 3, 4)},
    **{f"duplicated_{n}_n_grams": f"dup_{n}_gram_max" for n in range(5, 11)},
    "line_punct_ratio": "line_punct_ratio_min", "short_line_ratio": "short_line_ratio_max",
    "char_dup_ratio": "char_dup_ratio_max", "list_ratio": "newline_ratio_max",
    "lorem_ipsum": "lorem_ipsum_max", "curly_bracket": "curly_brackets_max", "too_few_sentences": "sentences_min",
}  # fmt: skip
GOPHERS = {
    "gopher (ours)": ("gopher_quality", "gopher_repetition"), "datatrove": ("gopher@datatrove",),
    "dolma": ("gopher@dolma",), "dclm": ("gopher@dclm",), "nemo": ("gopher@nemo",),
}  # fmt: skip
WORDS_OF_EVERY = 10  # documents: spaCy's words are long to write
SHOWN = 20  # differing documents, at most

Removed = npt.NDArray[np.bool_]


@dataclass
class Compared:
    """One filter: what datatrove and our variant removed, and where the reason differs (both remove)."""

    theirs: Removed
    ours: Removed
    plain: Removed
    same_reason: int


def rules_of(part: str) -> list[Any]:
    """Our rules for one of datatrove's filters."""
    from corpusmill.pipeline.filter.rules.sets import rule_set

    rules = list(rule_set(COMPARED[part][1]).rules)
    if part == "repetition":
        return rules[:REPETITION_RULES]
    return rules[REPETITION_RULES:] if part == "quality" else rules


def signals(found: Sequence[str], asked: set[str]) -> tuple[pa.Table, float]:
    """(the signals asked for and all that are always measured, CPU seconds of the ones asked for alone)."""
    from corpusmill.pipeline.filter.apply import signals_of_text
    from corpusmill.pipeline.filter.signals.registry import MEASURES
    from corpusmill.pipeline.filter.text.view import spans, text_buffers, view_of

    array = pa.array(found, pa.large_string())
    signals_of_text(array.slice(0, 20), asked)  # compiled, and its tables made
    parts, seconds = [], 0.0
    for first, last in spans(array):
        part = array.slice(first, last - first)
        start = time.process_time()
        view = view_of(*text_buffers(part))
        for name in sorted(asked):
            MEASURES[name][1](view)
        seconds += time.process_time() - start
        parts.append(pa.table(signals_of_text(part, asked)))
    return pa.concat_tables(parts), seconds


def removed(rules: Sequence[Any], values: pa.Table) -> tuple[Removed, npt.NDArray[np.int64]]:
    """(which documents fail some rule, the first that each fails)."""
    from corpusmill.pipeline.filter.rules.judge import failures

    failed = np.stack([failures(rule, values) for rule in rules])
    return np.asarray(failed.any(axis=0)), np.asarray(failed.argmax(axis=0))


def words_alike(some: Sequence[str], words: Sequence[list[str]]) -> tuple[int, int, int]:
    """(documents, those of which our words are spaCy's to the last, spaCy's words)."""
    from corpusmill.pipeline.filter.signals.spacy_words import split

    alike = sum(split(text) == own for text, own in zip(some, words, strict=True))
    return len(some), alike, sum(map(len, words))


def measure() -> dict[str, Any]:
    """Everything that the page shows. Raises `NotMeasured`."""
    from corpusmill.pipeline.filter.rules.sets import rule_set

    kinds, found = zip(*texts(), strict=True)
    with tempfile.TemporaryDirectory() as folder:
        path = write_documents(Path(folder) / "texts.jsonl", map(str, range(len(found))), pa.array(found))
        answer = ask(FILTERS, "decisions", path)
        some = range(0, len(found), WORDS_OF_EVERY)
        path = write_documents(path, map(str, some), pa.array([found[row] for row in some]))
        words = ask(FILTERS, "words", path)
    ours = {part: rules_of(part) for part in COMPARED}
    asked = {rule.signal for rules in ours.values() for rule in rules}
    values, seconds = signals(found, asked)
    compared = {}
    for part, rules in ours.items():
        why = answer["why"][part]
        theirs = np.array([reason is not None for reason in why])
        own, first = removed(rules, values)
        same = sum(
            REASONS[why[row]] == rules[first[row]].name.split(".")[1] for row in np.flatnonzero(theirs & own)
        )
        compared[part] = Compared(theirs, own, removed(rule_set(COMPARED[part][2]).rules, values)[0], same)
    gophers = {
        name: [rule for each in sets for rule in rule_set(each).rules] for name, sets in GOPHERS.items()
    }
    everything, _ = signals(found, {rule.signal for rules in gophers.values() for rule in rules})
    sides = {name: removed(rules, everything)[0] for name, rules in gophers.items()}
    return {
        "kinds": np.array(kinds), "texts": found, "compared": compared, "sides": sides, "values": values,
        "why": answer["why"], "seconds": seconds, "peer_seconds": answer["seconds"],
        "words": words_alike([found[row] for row in some], words),
        "megabytes": sum(len(text.encode()) for text in found) / 1e6,
    }  # fmt: skip


def shown(result: dict[str, Any]) -> str:
    """The tables."""
    documents = len(result["texts"])
    compared: dict[str, Compared] = result["compared"]
    lines = [
        f"{documents:,} documents, {result['megabytes']:.0f} MB, against {FILTERS.label}.",
        "",
        "| datatrove's filter | it removes | variant | the variant alone removes | it alone removes | decisions agree |"
        " of those that both remove, by the same rule | without the variant |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for part, (name, variant, plain) in COMPARED.items():
        c = compared[part]
        both = int((c.theirs & c.ours).sum())
        lines.append(
            f"| {name} | {c.theirs.sum():,} | `{variant}` | {(c.ours & ~c.theirs).sum()} | {(c.theirs & ~c.ours).sum()} |"
            f" {_percent((c.ours == c.theirs).mean())} | {_percent(c.same_reason / max(both, 1))} |"
            f" `{plain}`: {_percent((c.plain == c.theirs).mean())} |"
        )
    documents, alike, words = result["words"]
    speed, peer = result["megabytes"] / result["seconds"], result["megabytes"] / result["peer_seconds"]
    lines += [
        "",
        f"Words: of every {WORDS_OF_EVERY}th document, {documents:,} with {words:,} words of spaCy's, all words are the same"
        f" in {alike:,}.",
        "",
        f"All four together, from text to values: {speed:.1f} MB/s per core, datatrove's filters {peer:.2f} MB/s"
        f" ({speed / peer:.0f} times).",
        "",
        "| text | documents | "
        + " | ".join(f"removed by {COMPARED[part][0]}" for part in COMPARED)
        + " | differ |",
        "|---|---|" + "---|" * (len(COMPARED) + 1),
    ]
    for kind in dict.fromkeys(result["kinds"].tolist()):
        here = result["kinds"] == kind
        shares = [_percent(c.theirs[here].mean()) for c in compared.values()]
        differ = sum(int((c.theirs != c.ours)[here].sum()) for c in compared.values())
        lines.append(f"| {kind} | {here.sum():,} | {' | '.join(shares)} | {differ} |")
    lines += ["", *_differences(result), "", *_among_tools(result["sides"])]
    return "\n".join(lines)


def _differences(result: dict[str, Any]) -> list[str]:
    rows = []
    for part, c in result["compared"].items():
        for row in np.flatnonzero(c.theirs != c.ours):
            failing = [
                rule for rule in rules_of(part) if removed([rule], result["values"].slice(row, 1))[0][0]
            ]
            own = ", ".join(f"{r.signal} {result['values'][r.signal][row].as_py():.4g}" for r in failing)
            start = " ".join(result["texts"][row][:60].split()).replace("|", " ")
            rows.append(
                f"| {COMPARED[part][0]} | {result['kinds'][row]} | {result['why'][part][row] or 'stays'} |"
                f" {own or 'stays'} | {start} |"
            )
    if not rows:
        return ["No document is decided otherwise."]
    head = [
        "Documents that are decided otherwise:",
        "",
        "| filter | text | datatrove | ours | begins |",
        "|---|---|---|---|---|",
    ]
    more = [f"... and {len(rows) - SHOWN} more"] if len(rows) > SHOWN else []
    return [*head, *rows[:SHOWN], *more]


def _among_tools(sides: dict[str, Removed]) -> list[str]:
    names = list(sides)
    lines = [
        "The Gopher rules of each tool (quality and repetition together) on the same documents: what each removes, and"
        " on how many documents two of them agree.",
        "",
        "| variant | removes | " + " | ".join(names) + " |",
        "|---|---|" + "---|" * len(names),
    ]
    for name in names:
        cells = ["" if name == other else _percent((sides[name] == sides[other]).mean()) for other in names]
        lines.append(f"| {name} | {_percent(sides[name].mean())} | {' | '.join(cells)} |")
    together = np.stack(list(sides.values()))
    split = (together.any(axis=0) & ~together.all(axis=0)).mean()
    lines += ["", f"On {_percent(split)} of the documents the five do not agree."]
    return lines


def _percent(share: float) -> str:
    """Never rounded up to all, nor down to nothing."""
    if 0 < share < 1:
        return f"{min(max(100 * share, 0.01), 99.99):.2f} %"
    return f"{100 * share:.0f} %"


def main() -> None:
    """Print the tables and write them into the page."""
    if not available():
        print("not measured: the real text (../shared/data) is not beside this checkout")
        return
    try:
        tables = shown(measure())
    except NotMeasured as why:
        print(f"not measured: {why}")
        return
    print(tables)
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{tables}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
