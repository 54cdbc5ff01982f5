"""Sets with rules on lines, and a user's own file of rules that was changed since the run."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from corpusmill.common.config import override, validate
from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.publish import publish_table, read_table
from corpusmill.pipeline.engine.runner import Run
from corpusmill.pipeline.inspect.what_if.answer import Answer, answer
from corpusmill.pipeline.inspect.what_if.question import Finished, Question, ask, find_run
from corpusmill.schemas.manifest import StageManifest
from corpusmill.schemas.recipe import Recipe
from tests.conftest import Serial
from tests.pipeline.inspect.what_if.conftest import recipe

SIGNAL = (
    "from corpusmill.pipeline.filter.signals.registry import signal\n"
    'signal("my.words", "words", "me", "int")(lambda view: view.words * {times})\n'
)
RULES = (
    "name: mine\norigin: here\nrules:\n  - {{name: words, signal: gopher.word_count, at_least: {least}}}\n"
)
PLAIN = ["filter.language=null", "filter.toxicity=null", "filter.quality=null"]


@pytest.fixture(scope="module")
def cutting(tmp_path_factory: pytest.TempPathFactory, base: Path, corpus: Path) -> Path:
    """The folder of a run that cuts lines, with a set of its own in rules.yaml beside it."""
    folder = tmp_path_factory.mktemp("cutting")
    (folder / "rules.yaml").write_text(RULES.format(least=40))
    (folder / "words.txt").write_text("king\n")
    (folder / "signal.py").write_text(SIGNAL.format(times=1))
    shutil.copytree(base / "ingest", folder / "run/ingest")
    execute(folder / "run", corpus, [])
    return folder / "run"


def asked(run: Path, corpus: Path, settings: list[str]) -> Recipe:
    own = [
        *PLAIN, f"filter.rules=[c4, {run.parent}/rules.yaml]", "filter.cut_lines=true",
        f"filter.word_lists.kings.files=[{run.parent}/words.txt]", f"filter.plugins=[{run.parent}/signal.py]",
    ]  # fmt: skip
    return recipe(run, corpus, [*own, *settings])


def execute(run: Path, corpus: Path, settings: list[str]) -> StageManifest:
    manifests = Run(asked(run, corpus, settings), Folder(run), Serial(), replace=True).execute()
    return next(manifest for manifest in manifests if manifest.stage == "filter")


def what_if(run: Path, corpus: Path, settings: list[str]) -> Answer:
    return answer(ask(find_run(str(run)), asked(run, corpus, settings)), Serial())


def test_documents_kept_are_those_of_a_run_though_lines_are_cut(
    cutting: Path, corpus: Path, tmp_path: Path
) -> None:
    change = ["filter.thresholds.c4.sentences_min=9"]
    found = what_if(cutting, corpus, change)
    shutil.copytree(cutting.parent, tmp_path / "copy")
    real = execute(tmp_path / "copy/run", corpus, change)
    assert {row["source"]: row["after"]["documents"] for row in found["sources"]} == {
        name: counts.kept for name, counts in real.per_source.items()
    }
    assert 0 < found["total"]["after"]["documents"] < found["total"]["before"]["documents"]
    assert real.counts.bytes_kept < found["total"]["after"]["text_bytes"]  # the text is counted as ingested


@pytest.mark.parametrize(
    "setting",
    [
        "filter.disable=[c4.policy]", "filter.thresholds.c4.words_min=4", "filter.skip_sources={docs: [c4]}",
        "filter.cut_lines=false", "filter.rules=[gopher_quality]",
    ],
)  # fmt: skip
def test_what_would_cut_other_lines_is_refused(cutting: Path, corpus: Path, setting: str) -> None:
    with pytest.raises(UserError, match="which takes the text; filter must run again") as refused:
        what_if(cutting, corpus, [setting])
    assert "\n" not in str(refused.value)


def test_sets_on_lines_may_go_where_nothing_is_cut(run: Finished) -> None:
    def ask_for(setting: str) -> Recipe:
        return validate(Recipe, override(run.recipe.model_dump(mode="json"), [setting]), "test")

    found = answer(ask(run, ask_for("filter.rules=[gopher_quality]")), Serial())
    assert found["total"]["after"]["documents"] > found["total"]["before"]["documents"]
    with pytest.raises(UserError, match="c4: its rules on lines would cut other lines"):
        ask(run, ask_for("filter.thresholds.c4.words_min=4"))


def test_a_file_of_rules_changed_since_the_run_is_a_question(cutting: Path, corpus: Path) -> None:
    file = cutting.parent / "rules.yaml"
    with pytest.raises(UserError, match="nothing differs"):
        what_if(cutting, corpus, [])
    file.write_text(RULES.format(least=400))
    try:
        found = what_if(cutting, corpus, [])
    finally:
        file.write_text(RULES.format(least=40))
    assert found["changes"] == {"rule mine.words": {"run": 40.0, "asked": 400.0}}
    assert found["gone"]["documents"] > 10 and found["back"]["documents"] == 0
    assert {row["rule"] for row in found["gone"]["examples"]} == {"mine.words"}


@pytest.mark.parametrize(
    ("name", "key", "old", "new"),
    [
        ("words.txt", "filter.word_lists.kings.files", "king\n", "queen\n"),
        ("signal.py", "filter.plugins", SIGNAL.format(times=1), SIGNAL.format(times=2)),
    ],
)
def test_lists_and_plugins_changed_since_the_run_are_refused(
    cutting: Path, corpus: Path, name: str, key: str, old: str, new: str
) -> None:
    """A run would measure again, for any recipe."""
    file = cutting.parent / name
    assert file.read_text() == old
    file.write_text(new)
    try:
        with pytest.raises(
            UserError, match=f"{key}: changed since the run.*filter must run again"
        ) as refused:
            what_if(cutting, corpus, ["filter.thresholds.c4.sentences_min=9"])
        file.unlink()
        with pytest.raises(UserError, match="no such file"):
            what_if(cutting, corpus, ["filter.thresholds.c4.sentences_min=9"])
    finally:
        file.write_text(old)
    assert "\n" not in str(refused.value)


def bent(base: Path, folder: Path, settings: list[str]) -> Path:
    """A copy of the run without its texts, with these keys of the filter's manifest changed."""
    copy = folder / "run"
    shutil.copytree(base, copy, ignore=shutil.ignore_patterns("ingest", "documents"))
    manifest = json.loads((copy / "filter/manifest.json").read_text())
    (copy / "filter/manifest.json").write_text(json.dumps(override(manifest, settings)))
    return copy


def question(run: Path, corpus: Path) -> Question:
    return ask(find_run(str(run)), recipe(run, corpus, ["filter.thresholds.c4.sentences_min=9"]))


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("version='1'", "the run was filtered by version 1 of the stage, this is "),
        ("key=other", "the run is not finished: its stages are of different recipes"),
        ("params.cut_lines=true", "the run is not finished: its stages are of different recipes"),
        ("params.models.toxicity=other", r"filter\.toxicity\.model: changed since the run"),
        ("params.unicode=1.1.0", "this Python's Unicode: changed since the run"),
    ],
)
def test_a_run_of_another_making_is_refused(
    base: Path, corpus: Path, tmp_path: Path, setting: str, says: str
) -> None:
    with pytest.raises(UserError, match=says) as refused:
        question(bent(base, tmp_path, [setting]), corpus)
    assert "\n" not in str(refused.value)


def test_files_that_do_not_add_up_stop_it(base: Path, corpus: Path, tmp_path: Path) -> None:
    counts = find_run(str(base)).manifest("filter").counts
    more = [f"counts.docs_in={counts.docs_in + 1}", f"counts.kept={counts.kept + 1}"]
    copy = bent(base, tmp_path, more)
    with pytest.raises(WorkError, match="files and manifest disagree"):
        answer(question(copy, corpus), Serial())
    manifest = json.loads((copy / "ledger/_manifest.json").read_text())
    file = manifest["files"][0]["path"]
    table = read_table(Folder(copy / "ledger" / file)).slice(1)
    manifest["files"][0] = publish_table(Folder(copy / "ledger"), file, table).model_dump()
    (copy / "ledger/_manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(WorkError, match="documents of the filter are missing"):
        answer(question(copy, corpus), Serial())


def test_what_was_not_there_to_be_measured_is_refused(cutting: Path, corpus: Path) -> None:
    with pytest.raises(UserError, match="filter.quality: .*the run measured no such signal; filter must run"):
        what_if(cutting, corpus, ["filter.quality={remove_below: 0.1}"])
    run = find_run(str(cutting))
    bare = replace(run, recipe=run.recipe.model_copy(update={"stages": ["ingest"]}))
    with pytest.raises(UserError, match="the run has no filter stage"):
        ask(bare, asked(cutting, corpus, []))


def test_a_changed_file_is_refused_where_removed_documents_have_no_scores(
    cutting: Path, corpus: Path, tmp_path: Path
) -> None:
    shutil.copytree(cutting.parent, tmp_path / "copy")
    copy, scored_less = tmp_path / "copy/run", ["filter.score_removed=false"]
    execute(copy, corpus, scored_less)
    (copy.parent / "rules.yaml").write_text(RULES.format(least=20))
    with pytest.raises(
        UserError, match=r"what-if: rule mine\.words: the run scored only documents that the other"
    ):
        what_if(copy, corpus, scored_less)
