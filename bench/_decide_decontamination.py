"""What decontamination finds of evaluation items in real text: as they are, and with every tenth word changed.

Items of each set are put into real documents of other kinds, as they are printed (question, choices or answer), with the
records written as sets and harnesses write them: decon's files, llm-foundry's `context` beside `answer` or `continuation`, HellaSwag's,
BBQ's and HumanEval's own. One index of all sets; datatrove gets the inserted items
and some others, their fields named by hand. Figures are shares of documents found.

Rules were made on MMLU, HellaSwag, BLiMP and BBQ: their misses were looked at, and they are left out of the totals. Of the other sets no miss
was looked at. False alarms: real documents that hold no inserted item and are named all the same, printed so that they can be looked at.

`--labelled FILE`: JSON lines, each `{"item": RECORD, "text": DOCUMENT, "holds": true or false}`; all records make one set, and a
document counts as found if it is named, for whichever of them.
"""

from __future__ import annotations

import ast
import csv
import gzip
import io
import json
import random
import re
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bench import natural
from bench._decisions import Row
from bench.decontaminate import PEER, SETS, Ours, large
from bench.peers import NotMeasured, ask, write_documents

SAMPLE = 150  # items of a set
PEER_ITEMS = 500  # of a set that the peer looks for besides these; all of them would take it many minutes
FILLERS = ("wiki", "speeches", "blog", "factbook")  # no item comes from these
CLEAN = (*FILLERS, "docs_sqlite", "docs_postgresql", "docs_debian", "moby_dick", "qa", "abstracts")
LOOKED_AT = ("mmlu", "hellaswag", "blimp", "bbq")
WANTED = {"as they are": 0.97, "every 10th word changed": 0.60}
NGRAMS = {"datatrove 12-grams": "12", "datatrove 8-grams": "8"}  # its default, and a lenient one
LETTERS = "ABCDEFGHIJ"


class Shown(NamedTuple):
    """An item: its records, as the set's file has them; how it is printed; question and answer, for the peer."""

    records: list[dict[str, Any]]
    printed: str
    question: str
    answer: str


def shown(record: dict[str, Any], question: str, answer: str = "", choices: tuple[str, ...] = ()) -> Shown:
    """An item printed with lettered choices, or else its answer."""
    lines = [f"{LETTERS[i]}. {choice}" for i, choice in enumerate(choices)] or [answer]
    return Shown([record], "\n".join([question, *lines]).strip(), question, answer)


def mmlu() -> Iterator[Shown]:
    by: dict[str, list[dict[str, Any]]] = {}
    for row in natural.rows(SETS / "decon_mmlu_gsm8k"):
        if row["eval_key"] != "gsm8k":
            by.setdefault(row["question"], []).append(row)
    for question, rows in by.items():
        right = next((row["answer"] for row in rows if row.get("is_correct")), rows[0]["answer"])
        one = shown({}, question, right, tuple(row["answer"] for row in rows[:4]))
        yield one._replace(records=rows)


def hellaswag() -> Iterator[Shown]:
    for row in natural.rows(SETS / "hellaswag_val"):
        yield shown(row, row["ctx"], row["endings"][int(row["label"])])


def blimp() -> Iterator[Shown]:
    return (shown(row, row["sentence_good"]) for row in natural.rows(SETS / "blimp"))


def bbq() -> Iterator[Shown]:
    for row in natural.rows(SETS / "bbq"):
        yield shown(row, f"{row['context']} {row['question']}", row[f"ans{row['label']}"])


def gsm8k() -> Iterator[Shown]:
    """As harnesses write it: a lone context."""
    for row in natural.rows(SETS / "decon_mmlu_gsm8k"):
        if row["eval_key"] == "gsm8k":
            final = row["answer"].rpartition("####")[2].strip()
            record = {"context": row["question"], "answer": final, "chain_of_thought": row["answer"]}
            yield shown(record, row["question"], row["answer"])


def lambada() -> Iterator[Shown]:
    """Paragraphs of books, their last word as the answer."""
    for text in natural.read_only("books"):
        paragraphs = [p.split() for p in re.split(r"\n\s*\n", text) if 60 <= len(p.split()) <= 100]
        for words in paragraphs[:: max(1, len(paragraphs) // 30)]:
            context = " ".join(words[:-1])
            yield shown({"context": context, "continuation": words[-1]}, context, words[-1])


def pubmedqa() -> Iterator[Shown]:
    for row in natural.rows(natural.DATA / "natural/science_pubmedqa"):
        yield shown(row, row["context"], row["continuation"])


def alpaca() -> Iterator[Shown]:
    for row in natural.rows(SETS / "alpaca_seed_tasks"):
        case = row["instances"][0]
        yield shown(row, f"{row['instruction']}\n{case['input']}".strip(), case["output"])


def crows_pairs() -> Iterator[Shown]:
    text = gzip.decompress((SETS / "crows_pairs/crows_pairs.csv.gz").read_bytes()).decode()
    return (shown(row, row["sent_more"]) for row in csv.DictReader(io.StringIO(text)))


def winogender() -> Iterator[Shown]:
    text = (SETS / "winogender/all_sentences.tsv").read_text("utf-8")
    return (shown(row, row["sentence"]) for row in csv.DictReader(io.StringIO(text), delimiter="\t"))


def enterprise_pii() -> Iterator[Shown]:
    for row in natural.rows(natural.DATA / "pii/enterprise_pii_yesno"):
        yield shown(row, row["query"], row["choices"][row["gold"]])


def code() -> Iterator[Shown]:
    """As HumanEval: functions of the standard library, the docstring in the prompt."""
    for file in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        source = file.read_text("utf-8", "replace")
        lines = source.splitlines(keepends=True)
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) and len(node.body) > 1:
                cut = node.body[0].end_lineno or 0
                prompt, rest = "".join(lines[node.lineno - 1 : cut]), "".join(lines[cut : node.end_lineno])
                record = {
                    "task_id": f"{file.name}/{node.lineno}",
                    "prompt": prompt,
                    "canonical_solution": rest,
                }
                yield Shown([record], prompt + rest, prompt, rest)


FAMILIES: dict[str, Callable[[], Iterator[Shown]]] = {
    "mmlu": mmlu, "hellaswag": hellaswag, "blimp": blimp, "bbq": bbq, "gsm8k": gsm8k, "lambada": lambada, "pubmedqa": pubmedqa,
    "alpaca": alpaca, "crows_pairs": crows_pairs, "winogender": winogender, "enterprise_pii": enterprise_pii, "code": code,
}  # fmt: skip


def tenth(text: str) -> str:
    """Every tenth word replaced by one that stands in no item."""
    return " ".join(f"zzw{i}" if i % 10 == 9 else word for i, word in enumerate(text.split()))


EDITS: dict[str, Callable[[str], str]] = {"as they are": lambda text: text, "every 10th word changed": tenth}


def rows(labelled: Path | None) -> list[Row]:
    """Rows a set and edit, and of all sets that were not looked at."""
    with tempfile.TemporaryDirectory() as place:
        return _labelled(Path(place), labelled) if labelled is not None else _sets(Path(place))


def _sets(folder: Path) -> list[Row]:
    fillers = [text[:1200] for name in FILLERS for text in natural.read_only(name) if len(text) > 1200]
    random.Random(0).shuffle(fillers)
    chosen, peer_items = {}, []
    (folder / "evals").mkdir()
    for name, read in FAMILIES.items():
        items = list(read())
        lines = [json.dumps(record) for item in items for record in item.records]
        (folder / f"evals/{name}.jsonl").write_text("\n".join(lines), "utf-8")
        chosen[name] = random.Random(1).sample(items, min(SAMPLE, len(items)))
        peer_items += [*chosen[name], *items[:PEER_ITEMS]]
    cases = [
        (
            name,
            edit,
            f"{fillers[i % len(fillers)]}\n\n{change(item.printed)}\n\n{fillers[-1 - i % len(fillers)]}",
        )
        for name, items in chosen.items()
        for edit, change in EDITS.items()
        for i, item in enumerate(items)
    ]
    texts = [text for _, _, text in cases]
    ours = Ours(folder / "index", [str(folder / "evals")])
    found = ours.rows(large(texts))
    clean = [text[:1200] for name in CLEAN for text in natural.read_only(name)][::4]
    peers = _peers(folder, peer_items, texts + clean)
    note = _false_alarms(ours)
    for tool, hits in {"ours": ours.rows(large(clean)), **peers}.items():
        wrong = sum(1 for row in hits if row >= len(texts)) if tool != "ours" else len(hits)
        note += f"; {tool}: {wrong} of the first 1,200 characters of {len(clean):,}"
    result = []
    for edit in EDITS:
        total: dict[str, list[float]] = {}
        for name in FAMILIES:
            own = {i for i, case in enumerate(cases) if case[:2] == (name, edit)}
            shares = {tool: len(own & hits) / len(own) for tool, hits in {"": found, **peers}.items()}
            if name not in LOOKED_AT:
                for tool, share in shares.items():
                    total.setdefault(tool, []).append(share)
            looked = "looked at while rules were made" if name in LOOKED_AT else ""
            result.append(_row(edit, f"{name} ({len(own)})", shares, looked))
        means = {tool: sum(values) / len(values) for tool, values in total.items()}
        result.append(_row(edit, f"mean of {len(FAMILIES) - len(LOOKED_AT)} sets not looked at", means, note))
    return result


def _row(edit: str, judged_on: str, shares: dict[str, float], note: str) -> Row:
    peers = {tool: share for tool, share in shares.items() if tool}
    return Row(f"decontamination, {edit}", judged_on, shares[""], peers, WANTED[edit], note)


def _peers(folder: Path, items: list[Shown], texts: list[str]) -> dict[str, set[int]]:
    """What datatrove's filter removes, for each length of n-gram; nothing where it cannot be run."""
    given = folder / "items.jsonl"
    lines = [json.dumps({"query": item.question, "label": item.answer}) + "\n" for item in items]
    given.write_text("".join(lines), "utf-8")
    documents = write_documents(folder / "documents.jsonl", map(str, range(len(texts))), large(texts))
    found = {}
    for label, ngram in NGRAMS.items():
        try:
            found[label] = set(map(int, ask(PEER, documents, given, ngram)["removed"]))
        except NotMeasured as error:
            print(f"{label}: not measured, {error}")
    return found


def _false_alarms(ours: Ours) -> str:
    """Documents without an inserted item that are named, printed; their number, and the speed of the search."""
    count, named, size, seconds = 0, 0, 0, 0.0
    ours.rows(large(["The kernels are loaded once before."]))
    for name in CLEAN:
        texts = natural.read_only(name)
        start = time.process_time()
        hits = ours.rows(large(texts))
        seconds += time.process_time() - start
        count, named, size = count + len(texts), named + len(hits), size + sum(len(t.encode()) for t in texts)
        for hit in ours.named(large([texts[row] for row in sorted(hits)])):
            print(f"named in {name}: {hit}", file=sys.stderr)
    return (
        f"{named} of {count:,} real documents named; {size / 1e6 / seconds:.0f} MB/s per core; index"
        f" {ours.index.bytes / 1e6:.0f} MB"
    )


def _labelled(folder: Path, file: Path) -> list[Row]:
    given = [json.loads(line) for line in file.read_text("utf-8").splitlines() if line.strip()]
    (folder / "items.jsonl").write_text("".join(json.dumps(one["item"]) + "\n" for one in given), "utf-8")
    found = Ours(folder / "index", [str(folder / "items.jsonl")]).rows(large([one["text"] for one in given]))
    result = []
    for holds, what in ((True, "documents that hold an item, found"), (False, "other documents, left alone")):
        own = {i for i, one in enumerate(given) if one["holds"] is holds}
        if own:
            share = len(own & found) / len(own)
            result.append(
                Row(
                    f"decontamination: {what}", f"{file.name} ({len(own)})", share if holds else 1 - share, {}
                )
            )
    return result
