"""What `what-if` answers is what a run with the changed recipe does; what it cannot know, it refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.common.config import override, validate
from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.publish import publish_table, read_table
from corpusmill.pipeline.engine.runner import Run
from corpusmill.pipeline.inspect.what_if.answer import answer, show
from corpusmill.pipeline.inspect.what_if.question import Finished, ask, find_run
from corpusmill.schemas.manifest import StageManifest
from corpusmill.schemas.recipe import Recipe
from tests.conftest import Serial
from tests.pipeline.inspect.what_if.conftest import Rerun, recipe

CHANGES = {
    "one threshold": ["filter.thresholds.gopher_quality.word_count_min=30"],
    "both ways": [
        "filter.thresholds.gopher_quality.word_count_min=20",
        "filter.thresholds.c4.sentences_min=9",
        "filter.thresholds.fineweb.char_dup_ratio_max=0.01",
    ],
    "rules off": ["filter.disable=[gopher_quality.stop_words_min, c4.sentences_min]"],
    "fewer sets": ["filter.rules=[c4, gopher_quality]"],
    "other sources": ["filter.skip_sources={planted: ['*'], docs: [language, c4]}"],
    "no language": ["filter.language=null"],
    "language": ["filter.language.keep=null", "filter.language.threshold=0.9"],
    "classifiers": ["filter.toxicity.remove_above=0.3", "filter.quality.remove_below=0.4"],
    "a model off": ["filter.toxicity=null"],
    "over signals": ["filter.quality_signals.remove_below=0.5"],
}


def asked(run: Finished, settings: list[str]) -> Recipe:
    return validate(Recipe, override(run.recipe.model_dump(mode="json"), settings), "test")


def what_if(run: Finished, settings: list[str], scheduler: Serial | None = None) -> dict[str, Any]:
    return answer(ask(run, asked(run, settings)), scheduler or Serial())


@pytest.mark.parametrize("change", CHANGES)
def test_it_answers_what_a_run_does(run: Finished, rerun: Rerun, change: str) -> None:
    """Documents and bytes kept, per source and in all; every rule's counts."""
    found, real = what_if(run, CHANGES[change]), rerun(CHANGES[change])
    before = run.manifest("filter")
    for side, manifest in (("before", before), ("after", real)):
        stated = {
            row["source"]: (row["documents_in"], *list(row[side].values())[:2]) for row in found["sources"]
        }
        counts = manifest.per_source.items()
        assert stated == {name: (c.docs_in, c.kept, c.bytes_kept) for name, c in counts}
        assert found["total"][side]["documents"] == manifest.counts.kept
    assert (before.counts.kept != real.counts.kept) or change == "a model off"
    for row in found["rules"]:
        for side, manifest in (("before", before), ("after", real)):
            for what, name in (("first", "first"), ("failed", "failed"), ("alone", "only")):
                assert row[side][what] == manifest.counters.get(f"rule/{row['rule']}/{name}", 0)


def test_examples_are_documents_that_change(run: Finished, rerun: Rerun, tmp_path: Path) -> None:
    found = answer(ask(run, asked(run, CHANGES["both ways"])), Serial(), examples=1000)
    rerun(CHANGES["both ways"])
    kept = {
        side: set(_kept(folder))
        for side, folder in (("now", run.filter), ("then", Folder(tmp_path / "again/filter")))
    }
    ids = {kind: {row["doc_id"] for row in found[kind]["examples"]} for kind in ("back", "gone")}
    assert ids == {"back": kept["then"] - kept["now"], "gone": kept["now"] - kept["then"]}
    assert all(len(found[kind]["examples"]) == found[kind]["documents"] > 5 for kind in ids)
    for row in found["back"]["examples"]:
        assert row["value"] is not None and row["threshold"] is not None and row["locator"]
        assert (row["outcome"], row["stage"]) == ("removed", "filter")
    few = what_if(run, CHANGES["both ways"])
    assert [row["doc_id"] for row in few["gone"]["examples"]] == sorted(ids["gone"])[:5]


def _kept(stage: Folder) -> list[str]:
    manifest = StageManifest.model_validate_json((stage / "manifest.json").read())
    tables = [
        read_table(stage / f"documents/{name}.parquet", columns=["doc_id"]) for name in manifest.partitions
    ]
    return [doc.hex() for table in tables for doc in table["doc_id"].to_pylist()]


def test_no_text_is_read_and_nothing_is_written(run: Finished, base: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(base, copy, ignore=shutil.ignore_patterns("documents", "ingest"))
    before = sorted((path, path.stat().st_mtime_ns) for path in copy.rglob("*"))
    found = what_if(find_run(str(copy)), CHANGES["both ways"])
    assert found == what_if(run, CHANGES["both ways"]) and found["back"]["documents"] > 0
    assert sorted((path, path.stat().st_mtime_ns) for path in copy.rglob("*")) == before


def test_the_order_of_the_tasks_changes_nothing(run: Finished) -> None:
    one, two = (what_if(run, CHANGES["both ways"], Serial(reverse)) for reverse in (False, True))
    assert json.dumps(one) == json.dumps(two)


@given(
    words=st.integers(0, 3000), sentences=st.integers(0, 60), dup=st.floats(0, 1), language=st.floats(0, 1),
    keep=st.none() | st.lists(st.sampled_from(["en", "de", "fr", "x"]), min_size=1), skip=st.booleans(),
)  # fmt: skip
@settings(max_examples=25)
def test_whatever_is_asked_adds_up(
    base: Path, words: int, sentences: int, dup: float, language: float, keep: list[str] | None, skip: bool
) -> None:
    run = find_run(str(base))
    found = what_if(
        run,
        [
            f"filter.thresholds.gopher_quality.word_count_min={words}",
            f"filter.thresholds.c4.sentences_min={sentences}",
            f"filter.thresholds.gopher_repetition.dup_line_frac_max={dup}",
            f"filter.language.threshold={language}",
            f"filter.language.keep={json.dumps(keep)}",
            f"filter.skip_sources={json.dumps({'planted': ['*']} if skip else {})}",
        ],
    )
    for row in [*found["sources"], found["total"]]:
        before, after = row["before"], row["after"]
        assert after["documents"] == before["documents"] + row["back"] - row["gone"] <= row["documents_in"]
    rules = {rule["rule"]: rule["after"] for rule in found["rules"]}
    assert all(
        0 <= rule["alone"] <= rule["failed"] and rule["first"] <= rule["failed"] for rule in rules.values()
    )
    moved = found["back"]["text_bytes"] - found["gone"]["text_bytes"]
    assert found["total"]["after"]["text_bytes"] - found["total"]["before"]["text_bytes"] == moved
    assert found["gone"]["kept_in_the_end"] == found["gone"]["documents"]  # this run has no later stage


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("filter.language.model=x.bin", "filter.language.model.*filter must run again"),
        ("filter.quality.label=good", "filter.quality.label.*filter must run again"),
        ("ingest.min_chars=9", "ingest.min_chars.*ingest must run again"),
        ("dedup.similarity=0.7", r"dedup.similarity.*0.8 -> 0.7.*dedup must run again"),
        ("sources.qa.priority=3", "dedup must run again"),
        ("sources.qa.paths=[x]", "ingest must run again"),
        ("seed=9", "every stage must run again"),
        ("name=other", "nothing differs"),
        ("sources.qa.license=MIT", "nothing differs"),
        ("filter.thresholds.c4.sentence_min=3", "did you mean 'c4.sentences_min'"),
    ],
)
def test_what_signals_cannot_answer_is_refused_in_one_line(run: Finished, setting: str, says: str) -> None:
    with pytest.raises(UserError, match=says) as refused:
        what_if(run, [setting])
    assert "\n" not in str(refused.value)


def test_a_score_over_signals_needs_those_that_it_was_made_of(run: Finished) -> None:
    asked_for = ["filter.quality=null", "filter.quality_signals.remove_below=0.5"]
    with pytest.raises(
        UserError, match=r"the score of quality_signals would be another.*filter must run again"
    ):
        what_if(run, asked_for)
    with pytest.raises(UserError, match=r"quality_signals\.model.*filter must run again"):
        what_if(run, ["filter.quality_signals.model=x.json"])
    for section in ("quality", "quality_signals"):
        with pytest.raises(UserError, match=r"texts of all languages.*filter must run again"):
            what_if(run, ["filter.language=null", f"filter.{section}.remove_below=0.5"])


def test_a_run_that_scored_what_was_left_answers_for_the_scores_alone(corpus: Path, tmp_path: Path) -> None:
    made = recipe(tmp_path, corpus, ["filter.score_removed=false"])
    Run(made, Folder(tmp_path), Serial()).execute()
    run = find_run(str(tmp_path))
    assert what_if(run, ["filter.toxicity.remove_above=0.3"])["gone"]["documents"] > 0
    with pytest.raises(
        UserError, match=r"what-if: filter\.disable: the run scored only documents that the"
    ) as one:
        what_if(run, ["filter.disable=[gopher_quality.word_count_min]"])
    assert "\n" not in str(one.value)


def test_a_signal_that_was_not_measured_is_named(run: Finished, base: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(base, copy)
    for file in (copy / "filter/signals").iterdir():
        table = read_table(Folder(file))
        publish_table(Folder(file.parent), file.name, table.drop(["gopher.hash_ratio"]))
    with pytest.raises(
        UserError, match="gopher_quality.hash_ratio_max looks at gopher.hash_ratio, which the run did"
    ):
        what_if(find_run(str(copy)), CHANGES["one threshold"])


def test_signals_that_do_not_give_the_decisions_stop_it(base: Path, tmp_path: Path) -> None:
    """Changed bytes are noticed by their checksum; a file swapped with its manifest by the decisions."""
    copy = tmp_path / "run"
    shutil.copytree(base, copy)
    name = sorted((copy / "filter/parts").iterdir())[0].stem
    table = read_table(Folder(copy / f"filter/signals/{name}.parquet"))
    zero = pc.multiply(table["gopher.word_count"], 0)
    changed = table.set_column(table.schema.get_field_index("gopher.word_count"), "gopher.word_count", zero)
    file = publish_table(Folder(copy / "filter"), f"signals/{name}.parquet", changed)
    with pytest.raises(WorkError, match="checksum differs"):
        what_if(find_run(str(copy)), CHANGES["one threshold"])
    part = copy / f"filter/parts/{name}.json"
    manifest = json.loads(part.read_text())
    for entry in manifest["files"]:
        if entry["path"].startswith("signals/"):
            entry.update(json.loads(file.model_dump_json()))
    part.write_text(json.dumps(manifest))
    with pytest.raises(WorkError, match="does not give the run's decisions"):
        what_if(find_run(str(copy)), CHANGES["one threshold"])


def test_a_run_that_is_not_finished_is_refused(base: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no finished run there"):
        find_run(str(tmp_path))
    copy = tmp_path / "run"
    shutil.copytree(base, copy)
    (copy / "filter/manifest.json").unlink()
    with pytest.raises(UserError, match="filter is not finished there"):
        what_if(find_run(str(copy)), CHANGES["one threshold"])


def test_words_fit_a_terminal(run: Finished) -> None:
    lines = show(what_if(run, CHANGES["both ways"])).splitlines()
    assert all(len(line) <= 80 for line in lines if not line.startswith("  "))
    assert "gopher_quality.word_count_min: 50 -> 20" in lines[0]
    assert sum(line.startswith("all ") for line in lines) == 1
