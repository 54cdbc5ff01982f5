"""Figures against a run small enough to count by hand (`corpora.ordinary`)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from corpusmill.common.errors import WorkError
from corpusmill.common.ids import doc_id
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.publish import publish_bytes, publish_table, read_table
from corpusmill.pipeline.report.survey import length_bins
from corpusmill.schemas.manifest import Counts
from tests.pipeline.report.conftest import Maker
from tests.pipeline.report.corpora import LONG, SECRET, ordinary
from tests.pipeline.report.made import Doc, publish_manifest


@pytest.fixture
def figures(make_run: Maker) -> dict[str, Any]:
    return make_run(ordinary()).figures()


def test_totals_and_flow(figures: dict[str, Any]) -> None:
    totals = figures["totals"]
    assert {k: totals[k] for k in ("records", "kept", "removed", "quarantined", "duplicates", "pii_spans")} == {
        "records": 14, "kept": 7, "removed": 6, "quarantined": 1, "duplicates": 3, "pii_spans": 2,
    }  # fmt: skip
    flow = {s["stage"]: (s["docs_in"], s["kept"], s["removed"], s["quarantined"]) for s in figures["flow"]}
    assert flow == {
        "ingest": (14, 12, 1, 1),
        "filter": (12, 10, 2, 0),
        "dedup": (10, 7, 3, 0),
        "redact": (7, 7, 0, 0),
    }


def test_sources(figures: dict[str, Any]) -> None:
    books, web = figures["sources"]
    assert (books["source"], books["records"], books["kept"], books["removed"]) == ("books", 6, 3, 3)
    assert books["removed_by_stage"] == {"dedup": 3} and books["pii_spans"] == 0
    assert (web["kept"], web["removed"], web["quarantined"], web["pii_spans"]) == (4, 3, 1, 2)
    assert web["removed_by_stage"] == {"filter": 2, "ingest": 1}


def test_rules_first_failed_alone_and_together(figures: dict[str, Any]) -> None:
    rules = {r["rule"]: (r["first"], r["failed"], r["alone"]) for r in figures["rules"]}
    assert rules["quality.words"] == (2, 2, 1)  # of its two failures one failed the language rule as well
    assert rules["language.keep"] == (0, 1, 0)
    assert rules["dedup.minhash"] == (2, 2, 2)
    text = {r["rule"]: r["bytes"] for r in figures["rules"]}
    both = len(f"kurz und klein {SECRET}".encode())
    assert text["quality.words"] == {"first": 5 + both, "failed": 5 + both, "alone": 5}
    assert text["language.keep"] == {"first": 0, "failed": both, "alone": 0}
    assert figures["overlap"] == {"rules": ["quality.words", "language.keep"], "counts": [[2, 1], [1, 1]]}


def test_lines_cut_by_rule_and_source(make_run: Maker) -> None:
    docs = [
        Doc("a#0", "kept text and more", edits=[("c4.policy", 0, 5), ("c4.policy", 9, 3), ("email", 1, 2)]),
        Doc("a#1", "kept text as well", "books", edits=[("c4.words_min", 3, 9)]),
        Doc("a#2", "third", "books", edits=[("c4.policy", 0, 1), ("dedup.lines", 0, 2)]),
    ]
    made = make_run([docs[:1], docs[1:]])
    assert made.figures()["cuts"] == [
        {"rule": "c4.policy", "spans": 3, "characters": 9, "sources": {"books": 1, "web": 2}},
        {"rule": "c4.words_min", "spans": 1, "characters": 9, "sources": {"books": 1}},
    ]
    page = (made.root / "report/report.html").read_text()
    assert (
        'href="#rules"' in page and "Lines cut out of documents that stay" in page
    )  # though no rule removed any


def test_curve_counts_what_any_threshold_would_remove(figures: dict[str, Any]) -> None:
    [curve] = figures["curves"]
    at = curve["grid"].index(50.0)
    documents, text = curve["documents"], curve["bytes"]
    assert (curve["rule"], documents["of"], curve["threshold"]) == ("quality.words", 12, 50.0)
    assert (documents["failed"][at], documents["marginal"][at]) == (2, 1)
    reached = [doc for part in ordinary() for doc in part if not (doc.gone and doc.gone[0] == "ingest")]
    assert len(reached) == 12
    assert text["of"] == sum(len(doc.text.encode()) for doc in reached)
    for threshold, failed, size in zip(curve["grid"], documents["failed"], text["failed"], strict=True):
        fail = [doc for doc in reached if doc.words < threshold]
        assert (failed, size) == (len(fail), sum(len(doc.text.encode()) for doc in fail))
    assert text["marginal"][at] == len(b"short") and curve["tokens"] is None  # no tokenizer in this run


def test_exempt_sources_are_not_on_the_curve(make_run: Maker) -> None:
    made = make_run(ordinary(), filter={"skip_sources": {"books": ["*"]}})
    [curve] = made.figures()["curves"]
    assert (
        curve["documents"]["failed"][-1] == 6
    )  # the documents of `web` that reached the filter, at a threshold above all


def test_personal_data_by_kind_and_the_tag_in_its_place(figures: dict[str, Any]) -> None:
    assert (figures["pii"]["spans"], figures["pii"]["documents"]) == (2, 1)
    spans = {k["kind"]: k["spans"] for k in figures["pii"]["kinds"]}
    assert spans["email"] == 1 and spans["ip"] == 1 and spans["card"] == 0
    [tag] = figures["samples"]["tags"]
    assert (tag["before"], tag["tag"]) == ("Write to ", "<EMAIL>") and tag["after"].startswith(
        " or <IP>. word"
    )


def test_no_secret_is_shown_of_text_removed_before_redaction(make_run: Maker) -> None:
    """A sample of what `filter` removed comes from before `redact`; and a cut may not leave half a secret."""
    card = "4111 1111 1111 1111"
    docs = [Doc("p#0", f"{SECRET} {'pad ' * 10}", gone=("filter", "r"), failed=[("r", 1.0, 2.0)])]
    docs += [Doc("p#1", "n " * 22 + card + " end", gone=("filter", "s"), failed=[("s", 1.0, 2.0)])]
    made = make_run([docs], report={"sample_chars": 50})
    folder = made.report()
    texts = [t["text"] for rule in made.figures()["samples"]["removed"] for t in rule["texts"]]
    assert len(texts) == 2 and all(len(text) <= 60 for text in texts)
    for name in ("report.html", "report.json", "card.md"):
        written = (folder / name).read_text()
        assert "jane.roe" not in written and "4111" not in written


PLANTED = ("jane.roe@mail.example.org", "joe@box.example.net", "+1 415 555 2671", "4111 1111 1111 1111")


@pytest.mark.parametrize(
    "stages", [("ingest", "filter", "redact"), ("ingest", "filter"), ("ingest", "redact")]
)
def test_no_planted_address_is_shown_wherever_it_stands(make_run: Maker, stages: tuple[str, ...]) -> None:
    """In texts that were kept or removed, near a threshold or not, in pairs, in the names of files and in details."""
    docs = []
    for number, secret in enumerate(PLANTED):
        place = f"mail/{PLANTED[number % 2]}/{number}.txt#0"
        text, clean = f"Write to {secret} soon. {LONG}", f"Write to <X> soon. {LONG}"
        edits = [("ip", 9, 3)] if "redact" in stages else []  # beside an address that the recipe leaves
        clean = f"Write to <X> or {secret} soon. {LONG}" if number else clean
        docs.append(Doc(f"k{place}", text, words=50 + number, redacted=clean, edits=edits))
        failed = [("quality.words", 49.0 - number, 50.0)]
        docs.append(
            Doc(f"r{place}", text, gone=("filter", "quality.words"), failed=failed, words=49 - number)
        )
        docs.append(Doc(f"q{place}", "?", gone=("ingest", "malformed_json")))
    if "filter" not in stages:
        docs = [doc for doc in docs if not (doc.gone and doc.gone[0] == "filter")]
    made = make_run([docs[:5], docs[5:]], stages)
    folder = made.report()
    for name in ("report.html", "report.json", "card.md"):
        written = (folder / name).read_text()
        assert [secret for secret in PLANTED if secret in written] == [], name
    samples = made.figures()["samples"]
    assert samples["kept"] and (
        not samples["near"] or samples["near"][0]["removed"][0]["locator"] == "rmail/<EMAIL>/0.txt#0"
    )


def test_languages_and_lengths(figures: dict[str, Any]) -> None:
    languages = {row["language"]: (row["documents"], row["kept"]) for row in figures["languages"]}
    assert languages == {"en": (10, 6), "de": (1, 0), "fr": (1, 1)}
    lengths = figures["lengths"]
    by_bin = dict(
        zip(lengths["from_bytes"], zip(lengths["documents"], lengths["kept"], strict=True), strict=True)
    )
    # 512 to 1023 bytes: the 960 of the ship (kept), its three copies, and the 1023 of y; 1024 of x starts the next.
    assert by_bin[512] == (5, 2) and by_bin[1024] == (1, 1)
    assert sum(lengths["documents"]) == 12 and sum(lengths["kept"]) == 7


def test_bins_are_powers_of_two() -> None:
    import numpy as np

    sizes = np.array([0, 1, 2, 3, 4, 1023, 1024, 1025, 2**40])
    assert length_bins(sizes).tolist() == [0, 0, 1, 1, 2, 9, 10, 10, 40]


def test_quarantine_names_reason_and_place(figures: dict[str, Any]) -> None:
    [row] = figures["quarantine"]
    assert (row["rule"], row["records"]) == ("malformed_json", 1)
    [example] = row["examples"]
    assert example.pop("doc_id") == doc_id("web", "a.jsonl#4").hex()
    assert example == {"source": "web", "locator": "a.jsonl#4", "detail": "at byte 12"}


@pytest.mark.parametrize(
    "stages", [("ingest",), ("ingest", "redact"), ("ingest", "dedup"), ("ingest", "filter")]
)
def test_fewer_stages_leave_sections_out(make_run: Maker, stages: tuple[str, ...]) -> None:
    docs = [[Doc("a#0", "kept text"), Doc("a#1", "bad", gone=("ingest", "broken"))]]
    made = make_run(docs, stages)
    figures, page = made.figures(), (made.root / "report/report.html").read_text()
    for stage, section in (
        ("dedup", "duplicates"),
        ("redact", "pii"),
        ("tokenizer", "tokenizer"),
        ("shard", "shards"),
    ):
        assert (figures[section] is not None) == (stage in stages)
        assert (f'id="{section}"' in page) == (stage in stages)


def test_nothing_kept_and_nothing_read(make_run: Maker) -> None:
    gone = [Doc(f"a#{i}", "x", gone=("filter", "r"), failed=[("r", 0.0, 1.0)]) for i in range(3)]
    corpora: list[list[list[Doc]]] = [[gone], [[], gone], [[]], []]
    for docs in corpora:
        figures = make_run(docs).figures()
        assert figures["totals"]["kept"] == 0 and figures["samples"]["kept"] == []
        assert figures["totals"]["records"] == sum(map(len, docs))


def test_samples_are_drawn_by_id_whatever_the_partitions(make_run: Maker, tmp_path: Path) -> None:
    docs = [Doc(f"a#{i}", f"text number {i}") for i in range(20)]
    drawn = []
    for parts in ([docs], [docs[::-1][:7], docs[::-1][7:]]):
        kept = make_run(parts, report={"samples": 4}).figures()["samples"]["kept"]
        drawn.append([sample["doc_id"] for sample in kept])
    assert drawn[0] == drawn[1] == sorted(doc.id.hex() for doc in docs)[:4]


def test_a_ledger_that_disagrees_stops_the_report(make_run: Maker) -> None:
    made = make_run(ordinary())
    ledger = made.previous["ledger"]
    table = read_table(ledger / "00000.parquet")
    publish_table(ledger, "00000.parquet", table.slice(1))
    with pytest.raises(WorkError, match="13 records, but the manifests count 14"):
        made.report()


def test_shards_and_tokenizer(make_run: Maker) -> None:
    made = make_run(ordinary())
    shards, tokenizer = Folder(made.root) / "shards", Folder(made.root) / "tokenizer"
    entry = {"index_xxh3": "0", "text_bytes": 400, "ndocs": 2}
    sets = [
        {"source": "books", "split": "train", "index": "books/train/index.json", "ntokens": 90, **entry},
        {
            "source": "books",
            "split": "validation",
            "index": "books/validation/index.json",
            "ntokens": 10,
            **entry,
        },
    ]
    index = {
        "tokenizer": "t",
        "tokenizer_xxh3": "0",
        "vocab_size": 300,
        "eos_id": 0,
        "dtype": "uint16",
        "sets": sets,
    }
    publish_bytes(shards, "index.json", json.dumps(index).encode())
    publish_bytes(tokenizer, "stats.json", b'{"unused_tokens": 7}')
    for name, folder in (("tokenizer", tokenizer), ("shard", shards)):
        publish_manifest(folder, name, [], Counts(), {"vocab_size": 300})
        made.previous[name] = folder
    figures = made.figures()
    assert (figures["totals"]["tokens"], figures["totals"]["train_tokens"]) == (100, 90)
    assert [s["tokens"] for s in figures["sources"]] == [100, 0]
    assert figures["tokenizer"] == {"vocab_size": 300, "unused_tokens": 7}
    # 100 tokens in 800 bytes of books; nothing of `web` was kept in this made set, so the whole set's rate serves it.
    assert figures["tokens_measured_on"] == "shards"
    [curve] = figures["curves"]
    at, text = curve["grid"].index(50.0), curve["bytes"]
    assert curve["tokens"]["of"] == round(text["of"] / 8)
    assert curve["tokens"]["failed"][at] == round(text["failed"][at] / 8) > 0
    rules = {r["rule"]: r for r in figures["rules"]}
    assert rules["dedup.minhash"]["tokens"]["first"] == round(rules["dedup.minhash"]["bytes"]["first"] / 8)


def test_the_stage_imports_nothing_heavy() -> None:
    code = (
        "import sys, corpusmill.pipeline.report.stage as s; s.STAGE;"
        "print([m for m in ('jinja2', 'numpy.testing', 'numba', 'torch', 'dask') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
