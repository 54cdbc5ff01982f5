"""Sets with rules on lines, and a user's own file of rules that was changed since the run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pipeline.filter.whatif.answer import Answer, Finished, answer, ask
from pipeline.filter.whatif.cli import find_run
from pipeline.runner import Run
from schemas.config import override, validate
from schemas.errors import UserError
from schemas.manifest import StageManifest
from schemas.recipe import Recipe
from schemas.storage import Folder
from tests.conftest import Serial
from tests.pipeline.filter.whatif.conftest import recipe

RULES = (
    "name: mine\norigin: here\nrules:\n  - {{name: words, signal: gopher.word_count, at_least: {least}}}\n"
)
PLAIN = ["filter.language=null", "filter.toxicity=null", "filter.quality=null"]


@pytest.fixture(scope="module")
def cutting(tmp_path_factory: pytest.TempPathFactory, base: Path, corpus: Path) -> Path:
    """The folder of a run that cuts lines, with a set of its own in rules.yaml beside it."""
    folder = tmp_path_factory.mktemp("cutting")
    (folder / "rules.yaml").write_text(RULES.format(least=40))
    shutil.copytree(base / "ingest", folder / "run/ingest")
    execute(folder / "run", corpus, [])
    return folder / "run"


def asked(run: Path, corpus: Path, settings: list[str]) -> Recipe:
    own = [*PLAIN, f"filter.rules=[c4, {run.parent}/rules.yaml]", "filter.cut_lines=true"]
    return recipe(run, corpus, [*own, *settings])


def execute(run: Path, corpus: Path, settings: list[str]) -> StageManifest:
    manifests = Run(asked(run, corpus, settings), Folder(run), Serial()).execute()
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
