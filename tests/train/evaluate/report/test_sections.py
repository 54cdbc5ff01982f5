"""Each section says of which step it is; what was calibrated, skipped or has no interval is shown as that."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from corpusmill.common.storage import Folder
from corpusmill.schemas.evaluation import (
    CALIBRATION,
    CONTAMINATION,
    ITEMS,
    RESULTS,
    CalibrationResults,
    ContaminatedTask,
    ContaminationResults,
    Estimate,
    EvaluationResults,
    Item,
    TrainedDocument,
)
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.evaluate.calibration import Cells, of_cells
from corpusmill.train.evaluate.report.facts import gather
from corpusmill.train.evaluate.report.page import CARD, PAGE, write
from corpusmill.train.evaluate.splits import EVALUATION, figures
from tests.browser import check_page
from tests.train.evaluate.report.test_page import task

if TYPE_CHECKING:
    from playwright.sync_api import Browser

Write = Callable[[], tuple[str, str]]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Of a run whose tasks were scored at step 2,000, its validation split at step 1,000."""
    run, (result, items) = Folder(tmp_path), task("mmlu", 0.9)
    empty = result.model_copy(
        update={"task": "long", "items": 0, "metrics": {}, "slices": {}, "chance": None, "skipped": {"too long": 31}}
    )  # fmt: skip
    results = EvaluationResults(
        name="tiny", step=2000, weights_hash="ab12", tokenizer_hash="cd34", precision="fp32", version="1.0",
        tasks={"long": empty, "mmlu": result},
    )  # fmt: skip
    (run / RESULTS).write(results.to_json())
    (run / ITEMS / "long.jsonl").write(b"")
    (run / ITEMS / "mmlu.jsonl").write("".join(item.model_dump_json() + "\n" for item in items).encode())
    row = {
        "tokens": 1000,
        "bytes": 4000,
        **figures(3000.0, 1000, 4000),
        "unigram": figures(5000.0, 1000, 4000),
    }
    row.update(unigram_source=None, ngrams={})
    splits = {"name": "tiny", "step": 1000, "sources": {"books": row}, "all_sources": row, "ngrams": {}}
    (run / EVALUATION).write(json.dumps(splits).encode())
    return run


@pytest.fixture
def written(folder: Folder, config: Callable[..., dict[str, Any]]) -> Write:
    """What page and card of the run show."""

    def both() -> tuple[str, str]:
        write(TrainConfig.model_validate(config()), folder)
        page = (folder / PAGE).read().decode().partition("<body>")[2].replace("<wbr>", "")
        return " ".join(re.sub(r"<[^>]*>", " ", page).split()), (folder / CARD).read().decode()

    return both


def test_figures_of_two_steps_have_their_own(written: Write) -> None:
    page, card = written()
    assert "1.082 bits per byte, all validation text, step 1,000" in page and "Of step 1,000." in page
    assert "Of step 2,000." in page
    assert "validation text at step 1,000" in card and "Tasks at step 2,000" in card


def test_a_task_without_a_scored_item_is_in_the_table(written: Write) -> None:
    page, card = written()
    assert "long 0 5 none scored: 31 (too long)" in page
    assert "| long | 0 | 5 | none scored, 31 left out |" in card and "31" not in card.split("---\n")[1]
    assert page.count("Where it fails") == 1  # of the other task
    assert "mmlu 200 2 not scored" in page


def test_calibration_of_next_tokens_is_shown(folder: Folder, written: Write) -> None:
    assert "Next tokens" not in written()[0]
    rng = np.random.default_rng(1)
    cells = Cells.of(rng.uniform(0.2, 0.9, 4321), np.zeros(4321))
    found = CalibrationResults(
        name="tiny", tasks={}, tasks_step=None, next_token={"books": of_cells(cells)}, next_token_step=1500
    )
    (folder / CALIBRATION).write(found.to_json())
    page, card = written()
    section = page[page.index("Of step 1,500.") :]
    assert "books 4,321 0 % 54.8 %" in section and f"{found.next_token['books'].ece:.4f}" in section
    assert "15 bins of equal numbers" in section
    assert "books" in card and f"{found.next_token['books'].ece:.4f}" in card


def test_calibration_alone_has_a_page(folder: Folder, tmp_path: Path, written: Write) -> None:
    for name in (RESULTS, EVALUATION):
        (tmp_path / name).unlink()
    found = CalibrationResults(
        name="tiny", tasks={}, tasks_step=None, next_token={"books": of_cells(Cells.of([0.5] * 9, [1] * 9))}, next_token_step=7,
    )  # fmt: skip
    (folder / CALIBRATION).write(found.to_json())
    assert "Of step 7." in written()[0]


def corpus_holds(items: list[str]) -> bytes:
    share = Estimate(value=0.5, se=None, low=None, high=None, n=1, clusters=1, method="clt")
    task = ContaminatedTask(
        task="mmlu", task_hash="c0ffee", metric="acc", searched=200, found=len(items), all=share, clean=None, contaminated=None, difference=None,
        documents=[TrainedDocument(item=item, doc_id="f0" * 16, source="books", share=0.9) for item in items],
    )  # fmt: skip
    found = ContaminationResults(weights_hash="ab12", report="out", ngram=13, threshold=0.5, tasks=[task])
    return found.to_json()


def test_what_the_corpus_holds_is_a_slice(
    folder: Folder, written: Write, config: Callable[..., dict[str, Any]]
) -> None:
    _, items = task("mmlu", 0.9)
    known = [item for item in items if item.metrics["acc"] == 1.0][::2]
    (folder / CONTAMINATION).write(corpus_holds([item.id for item in known]))
    page, card = written()
    assert re.search(r"found in the corpus no \d+", page) and "found in the corpus is no" in card
    facts = gather(TrainConfig.model_validate(config()), folder)
    (weak,) = [one for one in facts["tasks"][1]["weak"] if one["kind"] == "found in the corpus"]
    assert weak["items"] == 200 - len(known) and weak["rest"] == 1.0
    # Found in the corpus of another model: nothing is known of this one.
    (folder / CONTAMINATION).write(corpus_holds([item.id for item in known]).replace(b"ab12", b"ffff"))
    assert "found in the corpus" not in written()[0]


def test_weak_slices_have_examples(
    folder: Folder, config: Callable[..., dict[str, Any]], written: Write
) -> None:
    facts = gather(TrainConfig.model_validate(config()), folder)
    found = facts["tasks"][1]["weak"]
    assert found and all(len(one["examples"]) == 2 for one in found)
    for one in found:
        for sample in one["examples"]:
            (chosen,) = [choice for choice in sample["choices"] if choice["chosen"]]
            assert not chosen["gold"]
            if one["kind"] == "subject":
                assert sample["slices"]["subject"] == one["value"] == "<b>art</b>"
    written()
    raw = (folder / PAGE).read().decode()
    assert raw.count("Examples: ") == len(found) and "<b>art" not in raw and "<script" not in raw


def test_a_figure_without_an_interval_says_why(folder: Folder, written: Write) -> None:
    from corpusmill.train.commands.results import contaminated
    from corpusmill.train.commands.tasks import row

    few = "too few items for an interval"
    (folder / CONTAMINATION).write(corpus_holds(["mmlu-1"]))
    raw = (folder / RESULTS).read()
    results = EvaluationResults.from_json(raw, RESULTS)
    one = results.tasks["mmlu"].metrics["acc"].model_copy(update={"low": None, "high": None, "se": None})
    single = results.tasks["mmlu"].model_copy(update={"metrics": {"acc": one}})
    (folder / RESULTS).write(results.model_copy(update={"tasks": {"mmlu": single}}).to_json())
    page, card = written()
    assert f"0.5850 ({few})" in page and f"0.5850 ({few})" in card
    assert f"0.5000 ({few})" in page  # of the items in the corpus
    assert row(single, "acc", one) == ["acc", "0.585", few, "0.250"]
    found = ContaminationResults.from_json((folder / CONTAMINATION).read(), CONTAMINATION)
    assert contaminated(found)[1:] == [["mmlu", "all", "1", f"0.500 ({few})"]]


def test_the_card_has_the_beginning_of_a_slice_alone(folder: Folder, written: Write) -> None:
    """A slice may be by what is long in the data, such as a passage."""
    long = "A passage of the data that " + "goes on " * 40
    file = folder / ITEMS / "mmlu.jsonl"
    file.write(file.read().replace(b"<b>art</b>", long.encode()))
    card = written()[1]
    assert "subject is A passage of the data that goes on" in card and "goes on " * 4 not in card


@pytest.mark.browser
def test_the_sections_in_a_browser(folder: Folder, tmp_path: Path, written: Write, browser: Browser) -> None:
    cells = Cells.of([0.5] * 9, [1] * 9)
    found = CalibrationResults(
        name="tiny", tasks={}, tasks_step=None, next_token={"web_" * 20: of_cells(cells)}, next_token_step=7
    )
    (folder / CALIBRATION).write(found.to_json())
    (folder / CONTAMINATION).write(corpus_holds([f"mmlu-{number}" for number in range(0, 200, 2)]))
    written()
    check_page(browser, tmp_path / PAGE)


def test_the_card_reads_as_a_sentence(folder: Folder, written: Write) -> None:
    """Whether the right choice is the longest is a slice like any other."""
    file = folder / ITEMS / "mmlu.jsonl"
    items = [Item.model_validate_json(line) for line in file.read().splitlines()]
    grown = [
        one.model_copy(update={"choices": [f"c{n}{'!' * 9 * (n == one.gold and one.metrics['acc'] == 0)}" for n in range(4)]})
        for one in items
    ]  # fmt: skip
    file.write("".join(one.model_dump_json() + "\n" for one in grown).encode())
    assert "On mmlu it does worse where the right choice is the longest (0.0000, else 1.0000)" in written()[1]
