"""Two evaluated models side by side: what differs beyond noise is found, what does not is not, and nothing is paired by accident."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
import typer

from corpusmill.common.config import validate
from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.evaluation import (
    DOCUMENT_LOSSES,
    ITEMS,
    RESULTS,
    EvaluationResults,
    Item,
    TaskResult,
)
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.commands import register
from corpusmill.train.data.shards import open_shards
from corpusmill.train.evaluate.batches import whole
from corpusmill.train.evaluate.compare.compare import compare_models
from corpusmill.train.evaluate.documents import document_losses, keep, kept
from corpusmill.train.evaluate.scorer import Scorer
from corpusmill.train.evaluate.splits import EVALUATION
from corpusmill.train.evaluate.statistics import compared, estimate, holm
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.parallel.mesh import World
from corpusmill.train.parallel.model import ParallelModel
from tests.command_line import CliRunner
from tests.train.conftest import VOCAB

Scores = dict[str, list[float]]


def command(*arguments: Any) -> str:
    app = typer.Typer()
    register(app)
    done = CliRunner().invoke(app, ["compare-models", *map(str, arguments)])
    if done.exception:
        raise done.exception
    return done.stdout


def evaluated(
    place: Path, scores: Scores, *, hashes: Sequence[str] = (), ids: Sequence[int] | None = None, weights: str = "",
    tokenizer: str = "t", **asked: Any,
) -> str:  # fmt: skip
    """A folder with the evaluation of a run: by task, the acc of its items, in clusters of two; their parity is a slice."""
    folder = Folder(place)
    tasks = {}
    for number, (task, values) in enumerate(scores.items()):
        numbers = list(range(len(values)) if ids is None else ids)
        items = [
            Item(
                id=f"{task}-{n}", cluster=str(n // 2), slices={"parity": "odd" if n % 2 else "even"}, prompt="",
                metrics={"acc": value, "brier": 1 - value},
            )
            for n, value in zip(numbers, values, strict=True)
        ]  # fmt: skip
        (folder / ITEMS / f"{task}.jsonl").write(
            b"\n".join(item.model_dump_json().encode() for item in items)
        )
        tasks[task] = TaskResult(
            task=task, task_hash=hashes[number] if hashes else task, items=len(items), fewshot=0, chance=0.5,
            metrics={name: estimate([item.metrics[name] for item in items]) for name in ("acc", "brier")},
            slices={"parity": {}}, **asked,
        )  # fmt: skip
    results = EvaluationResults(
        name=place.name, step=7, weights_hash=weights or place.name, tokenizer_hash=tokenizer, precision="fp32", version="1",
        tasks=tasks,
    )  # fmt: skip
    (folder / RESULTS).write(results.to_json())
    return folder.url


def draws(seed: int, share: float, count: int = 400) -> list[float]:
    return (np.random.default_rng(seed).random(count) < share).astype(float).tolist()


def test_what_differs_is_beyond_noise_and_what_does_not_is_not(tmp_path: Path) -> None:
    base = draws(0, 0.5)
    better = [max(value, other) for value, other in zip(base, draws(1, 0.2), strict=True)]
    a = evaluated(tmp_path / "a", {"easy": base, "same": draws(2, 0.5), "only here": base})
    b = evaluated(tmp_path / "b", {"easy": better, "same": draws(3, 0.5)})
    found = compare_models([a], [b], by="parity")
    easy, same = found["rows"]
    assert (easy["task"], easy["metric"], easy["beyond_noise"]) == ("easy", "acc", True)
    assert (same["task"], same["beyond_noise"]) == ("same", False) and same["p"] > 0.05
    clusters = [str(n // 2) for n in range(400)]
    by_hand = compared(better, base, clusters)
    assert easy["difference"] == by_hand.estimate.model_dump() and easy["difference"]["clusters"] == 200
    assert easy["a"] == estimate(base, clusters).model_dump()
    assert easy["p_holm"] == holm([easy["p"], same["p"]])[0] == pytest.approx(2 * (by_hand.p or 0))
    assert found["not_compared"] == ["only here"] and "one run a side" in found["notes"][0]
    assert [(row["task"], row["slice"]) for row in found["slices"]] == [
        ("easy", "even"), ("easy", "odd"), ("same", "even"), ("same", "odd"),
    ]  # fmt: skip
    odd = compared(better[1::2], base[1::2])
    assert found["slices"][1]["difference"] == odd.estimate.model_dump()
    assert found["slices"][1]["p_holm"] > (odd.p or 0)  # corrected over the four rows of its table

    easy_needed = compare_models([a], [b], detect=0.01)["rows"][0]
    printed = command(a, b, "--by", "parity", "--detect", "0.01")
    line = next(line for line in printed.splitlines() if line.startswith("| easy "))
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    low, high = by_hand.estimate.low or 0, by_hand.estimate.high or 0
    assert cells[2:7] == [
        "400", f"{np.mean(base):.4f}", f"{np.mean(better):.4f}", f"{by_hand.estimate.value:+.4f}",
        f"{low:+.4f} to {high:+.4f}",
    ]  # fmt: skip
    needed = easy_needed["clusters_needed"]
    assert cells[8] == "yes" and needed > 200 and cells[10] == f"{2 * needed:,} in {needed:,} clusters"
    assert "since not all runs have it: only here" in printed and printed.count("\n| ") == 2 + 1 + 4 + 1
    assert json.loads(command(a, b, "--json")) == compare_models([a], [b])


def test_two_identical_checkpoints_differ_by_nothing(tmp_path: Path) -> None:
    a = evaluated(tmp_path / "a", {"task": draws(0, 0.3)}, weights="w")
    b = evaluated(tmp_path / "b", {"task": draws(0, 0.3)}, weights="w")
    found = compare_models([a], [b])
    d = found["rows"][0]["difference"]
    assert (d["value"], d["low"], d["high"], found["rows"][0]["beyond_noise"]) == (0, 0, 0, False)
    assert "A and B have the same weights" in found["notes"]


def test_items_are_paired_by_id_and_those_alone_are_counted(tmp_path: Path) -> None:
    """In any order: B has the items 10 to 49 backwards, and twenty of its own."""
    values = draws(4, 0.5, 50)
    a = evaluated(tmp_path / "a", {"task": values})
    back = list(range(49, 9, -1))
    b = evaluated(
        tmp_path / "b", {"task": [values[n] for n in back] + draws(5, 0.5, 20)}, ids=[*back, *range(80, 100)]
    )
    row = compare_models([a], [b])["rows"][0]
    assert (row["difference"]["n"], row["difference"]["value"]) == (40, 0)
    assert (row["only_a"], row["only_b"]) == (10, 20)
    assert "task, acc: 10 items of A without a partner" in command(a, b)


def test_how_many_were_asked_and_how_they_were_read_is_a_note(tmp_path: Path) -> None:
    """One task with and without a limit, by models of another tokenizer and context: the common items are compared."""
    values = draws(4, 0.5, 60)
    a = evaluated(tmp_path / "a", {"task": values}, hashes=("x",), questions_hash="q", context=512)
    b = evaluated(
        tmp_path / "b", {"task": values[::2]}, hashes=("y",), ids=range(0, 60, 2), tokenizer="u", questions_hash="q",
        limit=30, context=2048,
    )  # fmt: skip
    found = compare_models([a], [b])
    (row,) = found["rows"]
    assert (row["difference"]["n"], row["difference"]["value"], row["only_a"], row["only_b"]) == (
        30,
        0,
        30,
        0,
    )
    assert found["notes"][:3] == [
        "the runs have different tokenizers: figures of tokens or log-probabilities are of other units",
        "task: 30 and all items were asked for; those of all runs are compared",
        "task: the models read at most 512 and 2,048 tokens of an item",
    ]
    other = evaluated(tmp_path / "c", {"task": values}, hashes=("z",), questions_hash="r")
    with pytest.raises(UserError, match="not asked the same questions"):
        compare_models([a], [other])


def with_items(place: Path, task: str, items: list[Item], names: Sequence[str]) -> str:
    """A folder with the evaluation of a task of these items, and figures by these names."""
    url = evaluated(place, {task: [0.0]})
    results = EvaluationResults.from_json((Folder(url) / RESULTS).read(), "")
    figures = {name: estimate([0.5, 0.25]) for name in names}
    results.tasks[task] = results.tasks[task].model_copy(update={"metrics": figures, "items": len(items)})
    (Folder(url) / RESULTS).write(results.to_json())
    lines = b"\n".join(item.model_dump_json().encode() for item in items)
    (Folder(url) / ITEMS / f"{task}.jsonl").write(lines)
    return url


def test_bits_per_byte_of_texts_are_those_of_all_together(tmp_path: Path) -> None:
    """As `evaluate` has them, long texts weighing more; so are those of slices."""

    def run(name: str, bits: Sequence[float]) -> str:
        items = []
        for number, (each, size) in enumerate(zip(bits, (10, 10, 400, 1000), strict=True)):
            item = Item(
                id=str(number), cluster=str(number), prompt="", choices=["é" * (size // 2)], logprobs=[-each * math.log(2) * size],
                metrics={"bits_per_byte": each}, slices={"half": str(number // 2)},
            )  # fmt: skip
            items.append(item)
        return with_items(tmp_path / name, "text", items, ["bits_per_byte", "byte_perplexity"])

    a, b = run("a", (8.0, 6.0, 1.0, 1.5)), run("b", (4.0, 6.0, 1.0, 1.4))
    found = compare_models([a], [b], by="half")
    (row,) = found["rows"]
    assert row["a"]["value"] == pytest.approx((80 + 60 + 400 + 1500) / 1420)
    assert row["difference"]["value"] == pytest.approx((-40 - 100) / 1420)
    low, high = found["slices"]
    assert low["a"]["value"] == pytest.approx(7) and high["a"]["value"] == pytest.approx(1900 / 1400)
    with pytest.raises(UserError, match="they have bits_per_byte$"):
        compare_models([a], [b], metrics=["byte_perplexity"])


def seeded(folder: Path) -> tuple[list[str], list[str]]:
    """Three runs a side on 400 items, whose accuracies differ by their seeds as much as the sides do."""
    rng = np.random.default_rng(6)
    item = rng.random(400)

    def run(name: str, share: float) -> str:
        return evaluated(
            folder / name, {"task": (item + 0.1 * rng.normal(size=400) < share).astype(float).tolist()}
        )

    a = [run(f"a{n}", share) for n, share in enumerate((0.4, 0.5, 0.6))]
    b = [run(f"b{n}", share) for n, share in enumerate((0.62, 0.45, 0.55))]
    return a, b


def test_items_do_not_make_up_for_runs(tmp_path: Path) -> None:
    """Of runs that differ in their seed by 0.1, no number of items shows a difference of 0.01; 0.5 takes some items."""
    a, b = seeded(tmp_path)
    (row,) = compare_models(a, b, detect=0.01)["rows"]
    assert (row["items_needed"], row["more_runs_needed"]) == (None, True)
    assert "more runs" in command(
        a[0], b[0], "--also-a", a[1], "--also-a", a[2], "--also-b", b[1], "--also-b", b[2], "--detect", "0.01"
    )
    (row,) = compare_models(a, b, detect=0.5)["rows"]
    assert 0 < row["items_needed"] < 100 and not row["more_runs_needed"]


def test_seeds_widen_the_interval(tmp_path: Path) -> None:
    """Runs of a side that differ much: what two checkpoints show beyond noise is none of the recipes'."""
    a, b = seeded(tmp_path)
    assert compare_models(a[:1], b[:1])["rows"][0]["beyond_noise"]
    several = compare_models(a, b)
    assert not several["rows"][0]["beyond_noise"] and several["rows"][0]["difference"]["method"] == "seeds"
    assert [run["name"] for run in several["b"]] == ["b0", "b1", "b2"] and not several["notes"]
    printed = command(
        a[0], b[0], "--also-a", a[1], "--also-a", a[2], "--also-b", b[1], "--also-b", b[2], "--json"
    )
    assert json.loads(printed) == several


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    a = evaluated(tmp_path / "a", {"task": draws(0, 0.5, 9), "other": [1.0]}, hashes=("1" * 32, "x"))
    b = evaluated(tmp_path / "b", {"task": draws(0, 0.5, 9), "other": [1.0]}, hashes=("2" * 32, "x"))
    differ = "^task: not compared: .*/a and .*/b were not asked the same questions: its definition, rows or examples"
    with pytest.raises(UserError, match=differ):
        compare_models([a], [b], tasks=["task"])
    alone = evaluated(tmp_path / "alone", {"task": draws(0, 0.5, 9)}, hashes=("3" * 32,))
    with pytest.raises(UserError, match="^task: not compared"):
        compare_models([a], [alone])
    both = compare_models([a], [b])
    assert [row["task"] for row in both["rows"]] == ["other"] and re.match(differ, both["notes"][0])
    assert "task: not compared" in command(a, b)
    assert compare_models([a], [b], tasks=["other"])["rows"][0]["task"] == "other"
    for settings, message in (
        ({"tasks": ["othr"]}, "--task othr: .* which are task, other; did you mean 'other'"),
        (
            {"tasks": ["other"], "metrics": ["f1"]},
            "--metric f1: no task that all runs have has it; they have acc, brier",
        ),
        ({"tasks": ["other"], "by": "subject"}, "--by subject: no item has it; items have parity"),
    ):
        with pytest.raises(UserError, match=message):
            compare_models([a], [b], **settings)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"nowhere: has no evaluation/results.json .* `corpusmill evaluate`"):
        compare_models([a], [str(tmp_path / "nowhere")])
    with pytest.raises(
        UserError, match="nothing that all runs were scored on: .* has other, task; .* has third"
    ):
        compare_models([a], [evaluated(tmp_path / "c", {"third": [1.0]})])
    items = tmp_path / "b" / ITEMS / "other.jsonl"
    line = items.read_text()
    for text, message in (
        (f"{line}\n{line}", "line 2: the id other-0 occurs twice"),
        (f"{line}\n{{}}", "other.jsonl: line 2: not a Item: id: Field required"),
    ):
        items.write_text(text)
        with pytest.raises(UserError, match=message):
            compare_models([a], [b], tasks=["other"])
    items.unlink()
    with pytest.raises(UserError, match="other.jsonl: missing"):
        compare_models([a], [b], tasks=["other"])


def scorer_of(config: Callable[..., dict[str, Any]], noise: float = 0.0) -> Scorer:
    """Of a model with weights so large that documents differ, and some noise in them."""
    checked = validate(TrainConfig, config(), "config")
    made = Decoder(checked.model, VOCAB, 1)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.mul_(3 + noise * torch.randn(parameter.shape, generator=generator))
    return Scorer(ParallelModel([made], World()), checked, World())


@pytest.fixture
def scored(
    shards: Folder, config: Callable[..., dict[str, Any]], tmp_path: Path
) -> Callable[[float], Folder]:
    """A folder with the losses of the documents of every source under the model with this noise."""

    def make(noise: float) -> Folder:
        run = Folder(tmp_path / f"run{noise}")
        for name, source in open_shards(shards.url).validation.items():
            keep(run, name, document_losses(scorer_of(config, noise), source, 2))
        return run

    return make


def test_losses_of_documents_are_the_losses_of_the_split(
    scored: Callable[[float], Folder], shards: Folder, config: Callable[..., dict[str, Any]]
) -> None:
    """All tokens in order, whatever the size of batches, and documents that several blocks hold once."""
    opened, scorer = open_shards(shards.url), scorer_of(config)
    for name, table in kept(scored(0)).items():
        source = opened.validation[name]
        loss, tokens = scorer.total(whole(source, 24))
        assert table.schema == DOCUMENT_LOSSES and pa.compute.sum(table["tokens"]).as_py() == tokens
        assert np.sum(table["nats"].to_numpy()) == pytest.approx(loss)
        assert np.sum(table["bytes"].to_numpy()) == pytest.approx(source.index.text_bytes)
        # The fixture numbers the documents of each block from 0: so many has the split.
        assert (
            len(table)
            == sum(block.ndocs for _, block in source.blocks)
            == len(set(table["doc_id"].to_pylist()))
        )
        # The first document alone, in rows of its own.
        first = int(table["tokens"][0].as_py())
        batches = list(whole(source, 24))
        flat = np.concatenate([part.abs().numpy().ravel() for part in scorer.losses(batches)])
        assert table["nats"][0].as_py() == pytest.approx(float(flat[:first].sum()), rel=1e-5)


def test_pairing_documents_narrows_the_difference_of_bits_per_byte(scored: Callable[[float], Folder]) -> None:
    one, other = scored(0), scored(0.1)
    found = compare_models([one.url], [other.url])
    assert not found["rows"] and {row["source"] for row in found["documents"]} == set(kept(one))
    for run, stride in ((one, 24), (other, 6)):
        assert not any(
            "windows or strides" in line for line in compare_models([one.url], [other.url])["notes"]
        )
        (run / EVALUATION).write(json.dumps({"step": 7, "window": 24, "stride": stride}).encode())
    assert any("windows or strides" in line for line in compare_models([one.url], [other.url])["notes"])
    for row in found["documents"]:
        tables = [kept(run)[row["source"]] for run in (one, other)]
        sums = [np.sum(table["nats"].to_numpy()) for table in tables]
        size = np.sum(tables[0]["bytes"].to_numpy()) * np.log(2)
        assert row["difference"]["value"] == pytest.approx((sums[1] - sums[0]) / size)
        assert row["a"]["value"] == pytest.approx(sums[0] / size)
        assert 0 < row["difference"]["se"] < 0.5 * np.hypot(row["a"]["se"], row["b"]["se"])
    assert "Bits per byte of the validation split" in command(one, other)
    same = compare_models([one.url], [one.url])["documents"]
    assert all((row["difference"]["low"], row["difference"]["high"]) == (0, 0) for row in same)


def test_documents_alone_are_counted_and_a_damaged_file_is_refused(scored: Callable[[float], Folder]) -> None:
    one, other = scored(0), scored(0.1)
    table = kept(other)["wiki"]
    keep(other, "wiki", table.slice(2).take(list(range(len(table) - 3, -1, -1))))
    before = {row["source"]: row for row in compare_models([one.url], [one.url])["documents"]}
    row = next(row for row in compare_models([one.url], [other.url])["documents"] if row["source"] == "wiki")
    assert (row["only_a"], row["only_b"]) == (2, 0)
    assert (
        row["difference"]["n"] == before["wiki"]["difference"]["n"] - 2
        and abs(row["difference"]["value"]) < 0.5
    )
    (other / "evaluation/documents/wiki.parquet").write(b"PAR1")
    with pytest.raises(UserError, match="wiki.parquet: not losses of documents"):
        compare_models([one.url], [other.url])
