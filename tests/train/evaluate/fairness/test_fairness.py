"""The command on a run: what it prints and writes, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from corpusmill.common.config import load
from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.evaluation import ITEMS, RESULTS, Estimate, EvaluationResults, TaskResult
from corpusmill.schemas.fairness import FAIRNESS, FairnessResults
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.evaluate.fairness.fairness import of_items
from corpusmill.train.evaluate.splits import newest_checkpoint
from corpusmill.train.trainer import train
from tests.train.evaluate.fairness import made
from tests.train.test_commands import command


def letters(text: str) -> str:
    """In the letters that the run's tokenizer knows."""
    return "".join(chr(0x100 + 1 + ord(letter) % 95) for letter in text)


@pytest.fixture
def run(write_config: Callable[..., Path], tmp_path: Path) -> Folder:
    train(load(TrainConfig, write_config(**{"data.sequence_length": 48})))
    return Folder(tmp_path / "run")


@pytest.fixture
def terms(tmp_path: Path) -> Path:
    axis = {
        "groups": {"one": [letters("cat")], "other": [letters("dog"), letters("hound")]},
        "templates": [letters(f"{n} the ") + "{term}" + letters(" ran away") for n in range(5)],
        "prompts": [letters("the ") + "{term}", letters("my ") + "{term}"],
    }
    file = tmp_path / "terms.yaml"
    file.write_text(json.dumps({"axes": {"animal": axis}}, ensure_ascii=False), encoding="utf-8")
    return file


def with_items(run: Folder, weights: str) -> None:
    rows = [
        {"sent_more": f"a {n}", "sent_less": f"b {n}", "bias_type": "age", "stereo_antistereo": "stereo"}
        for n in range(30)
    ]
    items = made.crows_items(rows, made.random_logprobs(30, 2))
    (run / f"{ITEMS}/crows.jsonl").write(b"".join(item.model_dump_json().encode() + b"\n" for item in items))
    plain = made.item(0, {"ctx": "x"}, ["a", "b"], [0.0, 1.0], 0)
    (run / f"{ITEMS}/plain.jsonl").write(plain.model_dump_json().encode() + b"\n")
    one = Estimate(value=0.5, se=0.1, low=0.3, high=0.7, n=30, clusters=30, method="clt")
    task = TaskResult(task="crows", task_hash="", items=30, fewshot=0, chance=0.5, metrics={"acc": one})
    results = EvaluationResults(
        name="tiny", step=20, weights_hash=weights, tokenizer_hash="", precision="fp32", version="",
        tasks={"crows": task, "plain": task},
    )  # fmt: skip
    (run / RESULTS).write(results.to_json())


def test_everything_of_a_run(
    run: Folder, terms: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = newest_checkpoint(run)
    with_items(run, found.weights_xxh3)
    texts = tmp_path / "texts.jsonl"
    rows = [
        {"text": letters(f"text {n} \u2028 of many"), "group": ("north", "south")[n % 2]} for n in range(8)
    ]
    texts.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows), encoding="utf-8")
    arguments = ("fairness", run.url, "--terms", str(terms), "--samples", "2")
    less = json.loads(command(*arguments, "--prompts-per-group", "1", "--json"))["toxicity"]
    assert less["overall"]["prompts"] == 2 and less["available"] == 6
    result = json.loads(command(*arguments, "--texts", str(texts), "--json"))
    kept = FairnessResults.from_json((run / FAIRNESS).read(), "")
    assert result == kept.model_dump(mode="json")
    assert (kept.step, kept.weights_hash, kept.name) == (20, found.weights_xxh3, "tiny")
    assert list(kept.tasks) == ["crows"] and kept.tasks["crows"].kind == "crows_pairs"
    assert kept.terms["animal"].whole.gap.clusters == 5 and kept.terms["animal"].after is not None
    evaluated = json.loads(command("evaluate", run.url, "--ngram-tokens", "0", "--json"))["sources"]
    assert set(kept.sources) == set(evaluated)
    for name, one in kept.sources.items():
        assert one.bits_per_byte.value == pytest.approx(evaluated[name]["bits_per_byte"], rel=1e-5)
        assert one.bytes == evaluated[name]["bytes"] and one.bits_per_byte.low is not None
    assert {name: one.texts for name, one in kept.texts.items()} == {"north": 4, "south": 4}
    toxic = kept.toxicity
    assert toxic is not None and toxic.overall.prompts == 6 and toxic.samples == 2 and toxic.errors
    assert toxic.available is None and {name: one.prompts for name, one in toxic.groups.items()} == {
        "one": 2,
        "other": 4,
    }
    assert all(name in toxic.disparity["animal"] for name in ("one", "other"))

    printed = command(*arguments[:-1], "0")
    for words in (
        "crows (crows_pairs), 30 items",
        "animal: other",
        "no preference beyond chance (one half)",
        "p = ",
    ):
        assert words in printed
    assert "Toxicity" not in printed

    with_items(run, "other weights")
    assert "no items of bias tasks" in command(*arguments[:-1], "0")
    capsys.readouterr()
    assert of_items(run, found.weights_xxh3) == {}
    assert "is of step 20, not of the newest checkpoint: left out" in capsys.readouterr().err


def test_prompts_of_the_user_and_mistakes(run: Folder, terms: Path, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(
        "".join(json.dumps({"prompt": letters(f"p{n}"), "group": f"g{n % 2}"}) + "\n" for n in range(4)),
        encoding="utf-8",
    )
    labelled = tmp_path / "labelled.jsonl"
    rows = [("you stupid bitch", "bad"), ("a nice day in the park", "good")] * 3
    labelled.write_text(
        "".join(json.dumps({"text": t, "label": kind}) + "\n" for t, kind in rows), encoding="utf-8"
    )
    arguments = ("fairness", run.url, "--terms", str(terms), "--prompts", str(prompts), "--samples", "1")
    result = json.loads(command(*arguments, "--labelled", str(labelled), "--positive", "bad", "--json"))[
        "toxicity"
    ]
    assert set(result["groups"]) == {"g0", "g1"} and result["disparity"] == {}
    [error] = result["errors"]
    assert error == {
        "name": "labelled.jsonl", "texts": 6, "positives": 3, "precision": 1.0, "recall": 1.0, "false_positive_rate": 0.0
    }  # fmt: skip
    for file, content, message in (
        (prompts, '{"text": "x"}', '--prompts .*: line 1 is not a JSON object with a text "prompt"'),
        (prompts, '{"prompt": "x", "group": 3}', "line 1: group is not a text"),
    ):
        file.write_text(content, encoding="utf-8")
        with pytest.raises(UserError, match=message):
            command(*arguments)
    with pytest.raises(UserError, match="--occupations .*not a TSV with the columns occupation and"):
        command("fairness", run.url, "--occupations", str(labelled))
    with pytest.raises(UserError, match="--texts .*none.jsonl: no such file"):
        command("fairness", run.url, "--texts", str(tmp_path / "none.jsonl"))
