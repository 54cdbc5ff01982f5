"""The stage: what is removed, what is kept, and what is recorded."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.common.errors import UserError
from corpusmill.common.ids import checksum, text_hash
from corpusmill.pipeline.engine.custom import load_stage
from corpusmill.pipeline.engine.stage import LocalStage, Outcome
from corpusmill.pipeline.filter import apply as apply_module
from corpusmill.pipeline.filter.classifiers.scores import SPECS
from corpusmill.pipeline.filter.quality_signals.scores import SPECS as OVER_SIGNALS
from corpusmill.pipeline.filter.rules import line_matches as edit_module
from corpusmill.pipeline.filter.signals.catalogue import text_specs
from corpusmill.schemas.filter import TRUSTED
from corpusmill.schemas.recipe import Recipe
from corpusmill.schemas.tables import DECISIONS, DOCUMENTS, signals_schema
from tests.conftest import ROOT
from tests.pipeline.filter.helpers import PROSE, apply, documents, stage, without_models

GERMAN = (
    "Der Fluss entspringt in den Bergen nördlich der Stadt und fließt durch ein weites Tal. Im Frühling "
    "überschwemmt "
    "er die Wiesen, die an seinen Ufern liegen."
)


def signals(outcome: Outcome) -> pa.Table:
    """The signals, which this stage always has."""
    assert outcome.signals is not None
    return outcome.signals


def decided(outcome: Outcome) -> list[str | None]:
    """The rule that removed each document, in order of the decisions."""
    rules: list[str | None] = outcome.decisions["rule"].to_pylist()
    return rules


def test_load_stage_finds_a_partition_local_stage() -> None:
    found = load_stage("filter", Recipe.model_validate({"name": "t", "sources": {"web": {"paths": ["x"]}}}))
    assert isinstance(found, LocalStage) and found.name == "filter" and not found.looks_across


def test_mild_insults_go_by_the_share_of_toxic_sentences() -> None:
    insults = (
        "The picture was fine before you touched it. I told you three times that the date in the first line is wrong."
        " Go away, you disgusting little troll. Last month you did the same thing to the article about the river. You"
        " did not even read the book that you are quoting. Damn you and your stupid rules. Everybody can see it in the"
        " history of the page."
    )
    docs = documents([insults, PROSE])
    rules = ["toxic_sentences"]
    assert len(apply(docs, rules=[]).kept) == 2
    assert decided(apply(docs, rules=rules)) == ["toxic_sentences.share_max"]
    assert len(apply(docs, rules=rules, thresholds={"toxic_sentences.share_max": 0.5}).kept) == 2


def test_ordinary_prose_stays_and_learns_its_language() -> None:
    docs = documents([PROSE])
    outcome = apply(docs)
    assert outcome.kept["language"].to_pylist() == ["en"]
    assert (
        outcome.kept.drop(["language"]).equals(docs.drop(["language"])) and outcome.kept.schema == DOCUMENTS
    )
    assert outcome.decisions.schema == DECISIONS and len(outcome.decisions) == 0


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "gopher_quality.word_count_min"),
        ("Too short to be of use.", "gopher_quality.word_count_min"),
        (("Buy now. " * 100), "gopher_repetition.top_2_gram_max"),
        ("\n".join(f"The same line once more. {i % 3}" for i in range(40)),
        "gopher_repetition.dup_line_frac_max"),
        (PROSE.replace("the", "#the #").replace(" a ", " #### "), "gopher_quality.hash_ratio_max"),
        (PROSE + " if (x) { return; }", "c4.curly_brackets_max"),
        (PROSE + " Lorem ipsum dolor sit amet.", "c4.lorem_ipsum_max"),
        (PROSE.replace(".", ","), "c4.sentences_min"),
        (PROSE + "\nHome\nAbout\nContact\nSearch\nLog in\nNews\nHelp", "fineweb.short_line_ratio_max"),
    ],
)  # fmt: skip
def test_what_each_set_removes(text: str, rule: str) -> None:
    assert decided(apply(documents([text]), **without_models())) == [rule]


def test_every_failed_rule_is_listed_with_value_and_threshold() -> None:
    (row,) = apply(documents(["{ short }"]), language=None, toxicity=None).decisions.to_pylist()
    failed = {f["rule"]: (f["value"], f["threshold"]) for f in row["failed"]}
    assert row["rule"] == "gopher_quality.word_count_min" and row["value"] == 3 and row["threshold"] == 50
    assert failed["c4.curly_brackets_max"] == (1.0, 0.0)
    assert {
        "gopher_quality.alpha_words_min",
        "gopher_quality.stop_words_min",
        "c4.sentences_min",
    } <= failed.keys()


def test_language_rules() -> None:
    docs = documents([PROSE, GERMAN])
    outcome = apply(docs, rules=[], language={"keep": ["en"]}, toxicity=None)
    (row,) = outcome.decisions.to_pylist()
    assert (row["rule"], row["detail"]) == ("language.keep", "language de") and row["value"] > 0.8
    unsure = apply(documents(["xq zzkj 42 qpwo"]), rules=[], toxicity=None, language={"threshold": 0.99})
    assert decided(unsure) == ["language.threshold"]
    assert decided(apply(documents([""]), rules=[], toxicity=None)) == ["language.threshold"]


def test_toxicity_removes_abuse_and_not_prose() -> None:
    abuse = "you are a stupid fucking bitch and I hate you, shut the fuck up you dumb bitch"
    outcome = apply(documents([PROSE, abuse]), rules=[], language=None)
    assert decided(outcome) == ["toxicity.remove_above"] and outcome.kept["text"].to_pylist() == [PROSE]


def test_a_shipped_classifier_is_not_asked_about_a_language_that_it_does_not_know() -> None:
    found = signals(apply(documents([PROSE, GERMAN, ""])))
    for name in ("quality.score", "quality_signals.score"):
        assert [value is None for value in found[name].to_pylist()] == [False, True, False]
    assert signals(apply(documents([GERMAN]), language=None))["quality.score"].null_count == 0


def test_no_rule_on_toxicity_is_judged_where_few_words_are_known() -> None:
    foreign = "Fuck off " + GERMAN
    outcome = apply(
        documents([foreign, "fuck off you stupid bitch"]),
        rules=[],
        language=None,
        toxicity={"remove_above": 0.01},
    )
    known = signals(outcome)["toxicity.known_words"].to_pylist()
    assert known[0] < TRUSTED < known[1] and outcome.kept["text"].to_pylist() == [foreign]


def test_each_label_of_toxicity_has_a_threshold_of_its_own() -> None:
    texts = [PROSE, "you stupid moron", "Muslims are vermin, deport them all", "I will kill you."]
    params = {"remove_labels": {"insult": 0.9, "hate": 0.4, "threat": 0.3}}
    outcome = apply(documents(texts), rules=[], language=None, toxicity=params)
    assert decided(outcome) == ["toxicity.insult_above", "toxicity.hate_above", "toxicity.threat_above"]


def test_signals_are_all_there_whichever_rules_are_on() -> None:
    docs = documents([PROSE, "short", ""])
    everything, nothing = apply(docs), apply(docs, rules=[], disable=["language.threshold"], toxicity={})
    own = [f"c4.{name}" for name in ("cut_lines_ratio", "cut_words_ratio", "left_sentences")]
    # What a set would cut is measured for the sets that are on.
    assert (
        signals(everything).drop(own).schema
        == signals_schema([*text_specs(), *SPECS, *OVER_SIGNALS])
        == signals(nothing).schema
    )
    assert signals(everything)["doc_id"].to_pylist() == docs["doc_id"].to_pylist()
    assert signals(everything).drop(own).equals(signals(nothing)) and len(nothing.kept) == 3
    bare = signals(apply(docs, **without_models()))
    for name in ("language.code", "quality.score", "quality_signals.score"):
        assert bare[name].null_count == 3
    assert bare.select(range(40)).equals(signals(everything).select(range(40)))


def test_skip_sources() -> None:
    texts = ["def f():\n    return {1: 2}\n"]
    docs = pa.concat_tables([documents(texts, "code"), documents(texts, "web")])
    skip = {"code": ["gopher_quality", "gopher_repetition", "c4", "fineweb", "language"]}
    outcome = apply(docs, skip_sources=skip)
    assert outcome.kept["source"].to_pylist() == ["code"]
    assert len(apply(docs, skip_sources={"code": ["*"], "web": ["*"]}).decisions) == 0
    assert len(apply(docs, skip_sources={"code": ["c4"]}).decisions) == 2


@settings(max_examples=25)
@given(
    st.lists(
        st.text(max_size=60) | st.sampled_from([PROSE, GERMAN, "", "\x00", "\n", "__label__en"]), max_size=6
    ),
    st.data(),
)
def test_any_text_is_conserved_and_any_split_gives_the_same(texts: list[str], data: st.DataObject) -> None:
    docs = documents(texts)
    lines = data.draw(st.booleans())
    whole = apply(docs, cut_lines=lines)
    cut = data.draw(st.integers(0, len(texts)))
    chunked = pa.concat_tables([docs.slice(0, cut), docs.slice(cut)])
    for other in (apply(chunked, cut_lines=lines), apply(docs, cut_lines=lines)):
        assert other.kept.combine_chunks().equals(whole.kept.combine_chunks())
        assert other.decisions.equals(whole.decisions) and signals(other).equals(signals(whole))
    halves = [apply(part, cut_lines=lines) for part in (docs.slice(0, cut), docs.slice(cut))]
    assert pa.concat_tables([signals(h) for h in halves]).to_pylist() == signals(whole).to_pylist()
    assert pa.concat_tables([h.decisions for h in halves]).to_pylist() == whole.decisions.to_pylist()


def test_lines_are_cut_of_what_stays_and_every_cut_is_in_the_ledger() -> None:
    text = PROSE + "\n\nSubscribe now\n\nThis site uses cookies of ours.\nIt has [1] a last line.\n"
    docs = documents([text, "too short", PROSE, "Menu\nHome"])
    outcome = apply(docs, cut_lines=True)
    assert outcome.kept["text"].to_pylist() == [PROSE + "\n\nIt has  a last line.\n", PROSE]
    assert outcome.kept["text_hash"].to_pylist() == [text_hash(t) for t in outcome.kept["text"].to_pylist()]
    assert outcome.kept.schema == DOCUMENTS
    rows = outcome.decisions.to_pylist()
    assert [row["outcome"] for row in rows] == ["kept", "removed", "removed"], "in the order of the documents"
    assert [(e["kind"], text[e["offset"] : e["offset"] + e["length"]]) for e in rows[0]["edits"]] == [
        ("c4.no_terminal_mark", "Subscribe now\n\n"),
        ("c4.policy", "This site uses cookies of ours.\n"),
        ("c4.citation", "[1]"),
    ]
    assert rows[0]["rule"] is None and rows[1]["edits"] is None
    assert "lines.all_cut" in [entry["rule"] for entry in rows[2]["failed"]]
    assert outcome.counters["lines/c4.policy/spans"] == 1 and outcome.counters["lines/c4.citation/bytes"] == 3
    # Signals are of the text as it came, whether lines are cut or not.
    measured, cut = signals(apply(docs)), signals(outcome)
    assert cut.select(measured.column_names).equals(measured) and len(
        apply(docs).kept["text"][0].as_py()
    ) == len(text)
    again = apply(outcome.kept, cut_lines=True)
    assert len(again.decisions) == 0 and again.kept.equals(outcome.kept)


def test_lines_of_a_source_that_skips_the_set_stay() -> None:
    texts = [PROSE + "\n\nSubscribe now\n"]
    docs = pa.concat_tables([documents(texts, "code"), documents(texts, "web")])
    outcome = apply(docs, cut_lines=True, skip_sources={"code": ["c4"]})
    assert outcome.kept["text"].to_pylist() == [texts[0], PROSE + "\n"]
    assert signals(outcome)["lines.cut_lines_ratio"].to_pylist() == [0, 0.25]
    assert signals(outcome)["c4.cut_lines_ratio"].to_pylist() == [0.25, 0.25]


def test_small_views_give_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    docs = documents([PROSE, GERMAN, "", "x " * 900, PROSE * 2, PROSE + "\nMenu\n", PROSE + "\n[1] x."])
    whole = apply(docs, cut_lines=True)
    for module in (apply_module, edit_module):
        one = "spans" if module is apply_module else "pieces"
        monkeypatch.setattr(module, one, lambda text: ((row, row + 1) for row in range(len(text))))
    again = apply(docs, cut_lines=True)
    assert signals(again).equals(signals(whole)) and again.decisions.equals(whole.decisions)
    assert again.kept["text"].to_pylist() == whole.kept["text"].to_pylist() != docs["text"].to_pylist()


def test_key_holds_models_and_rules() -> None:
    key = stage().key_params()
    folder = ROOT / "pipeline/filter/models"
    sums = {
        path.name: checksum(path.read_bytes())
        for path in folder.iterdir()
        if path.suffix in (".ftz", ".json", ".safetensors")
    }
    assert key["models"] == {
        "language": f"{sums['language.ftz']}+{sums['language.json']}",
        "toxicity": sums["toxicity.safetensors"], "quality": sums["quality.ftz"],
        "quality_signals": sums["quality_signals.json"],
    }  # fmt: skip
    assert stage(language={"model": "lid.176"}).key_params()["models"]["language"] == sums["lid.176.ftz"]
    own = stage(language={"model": "language"}).key_params()["models"]["language"]
    assert own == key["models"]["language"]
    assert stage(language=None).key_params()["models"].keys() == {"toxicity", "quality", "quality_signals"}
    moved = stage(thresholds={"c4.sentences_min": 3}).key_params()
    assert moved["rules"] != key["rules"] and {"seed", "unicode", "skip_sources"} <= key.keys()


def test_a_foreign_model_needs_a_label_that_it_has() -> None:
    model = str(ROOT / "pipeline/filter/models/quality.ftz")
    with pytest.raises(UserError, match=r"filter\.quality\.label: missing"):
        apply(documents(["x"]), quality={"model": model})
    with pytest.raises(UserError, match="did you mean 'prose'"):
        apply(documents(["x"]), quality={"model": model, "label": "pros"})
    outcome = apply(documents([PROSE]), quality={"model": model, "label": "__label__prose"})
    assert (
        signals(outcome)["quality.score"].to_pylist()
        == signals(apply(documents([PROSE])))["quality.score"].to_pylist()
    )


def test_importing_the_stage_is_light() -> None:
    code = (
        "import sys, corpusmill.pipeline.filter.stage, corpusmill.pipeline.commands.classifier;"
        "print({'numba', 'fasttext', 'torch', 'dask'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("hash_seed", ["0", "1"])
def test_the_same_bytes_for_any_hash_seed(hash_seed: str, tmp_path: Any) -> None:
    code = (
        "import sys; from tests.pipeline.filter.helpers import *; from tests.pipeline.filter.test_stage "
        "import GERMAN;"
        "from corpusmill.pipeline.engine.publish import publish_table; from corpusmill.common.storage import Folder;"
        "o = apply(documents([PROSE, GERMAN, '{ x }', '']), language={'keep': ['fr', 'en', 'it']});"
        "print([publish_table(Folder(sys.argv[1]), f'{i}.parquet', t).xxh3 for i, t in enumerate(o[:3])])"
    )
    environment = {"PYTHONHASHSEED": hash_seed, "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    seen = SEEN.setdefault("bytes", done.stdout)
    assert done.stdout == seen and done.stdout.startswith("[")


SEEN: dict[str, str] = {}
