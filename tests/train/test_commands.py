"""The commands: what they print, what they refuse, what they load; evaluation and sampling."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import typer

from corpusmill.common.config import load, read_yaml
from corpusmill.common.errors import UserError
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.commands import register
from corpusmill.train.data.fetch import Blocks
from corpusmill.train.data.order import order
from corpusmill.train.data.planning import make_plan
from corpusmill.train.data.shards import open_shards
from corpusmill.train.evaluate import baselines
from corpusmill.train.trainer import train
from tests.command_line import CliRunner
from tests.conftest import ROOT


def command(*arguments: str) -> str:
    app = typer.Typer()
    register(app)
    result = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=True)
    if result.exception:
        raise result.exception
    return result.stdout


@pytest.fixture
def finished(write_config: Callable[..., Path]) -> Path:
    file = write_config(**{"schedule.steps": 60, "optimizer.lr": 1e-2})
    train(load(TrainConfig, file))
    return file


def test_help_loads_no_torch() -> None:
    code = (
        "import sys, typer, corpusmill.train.commands; corpusmill.train.commands.register(typer.Typer());"
        "heavy = {'torch', 'numpy', 'pyarrow', 'tokenizers', 'safetensors', 'obstore'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_constraints_that_cannot_be_kept_are_refused(finished: Path) -> None:
    with pytest.raises(UserError, match="constraints need a byte-level tokenizer"):
        command("generate", str(finished), "--regex", "[a-z]+")
    with pytest.raises(UserError, match="--regex and --json-schema: give one of them"):
        command("generate", str(finished), "--regex", "a", "--json-schema", "schema.json")
    with pytest.raises(UserError, match="--json-schema nowhere.json: No such file"):
        command("generate", str(finished), "--json-schema", "nowhere.json")


def test_evaluate_scores_the_whole_split_beside_the_unigram_model(finished: Path, tmp_path: Path) -> None:
    result = json.loads(command("evaluate", str(finished), "--json"))
    assert result == json.loads((tmp_path / "run/evaluation.json").read_text())
    shards = open_shards(read_yaml(finished)["data"]["shards"])
    counts = sum(baselines.counts(source) for source in shards.train.values()) + 1
    assert set(result["sources"]) == set(shards.validation)
    for name, row in result["sources"].items():
        index = shards.validation[name].index
        assert (row["tokens"], row["bytes"]) == (index.ntokens, index.text_bytes)
        assert row["bits_per_byte"] == pytest.approx(row["loss"] * row["tokens"] / math.log(2) / row["bytes"])
        assert row["perplexity"] == pytest.approx(math.exp(row["loss"]))
        blocks = Blocks([shards.validation[name]])
        tokens = np.concatenate([blocks.get([(0, i)])[0, i].tokens for i in range(3)])
        assert row["unigram"]["loss"] == pytest.approx(-np.log(counts[tokens] / counts.sum()).mean())
        assert row["loss"] < row["unigram"]["loss"] - 0.2
    printed = command("evaluate", str(tmp_path / "run"))  # by the run's folder, as Markdown
    assert (
        printed.count("\n| ") == 2 * (1 + 3 + 1) + 1
    )  # two tables: heading, sources, all of them; their mean
    assert list((tmp_path / "run").glob("unigram-*.safetensors"))


def test_evaluate_shows_ngram_models_of_what_was_seen_and_of_all(
    write_config: Callable[..., Path], tmp_path: Path
) -> None:
    file = write_config()
    train(load(TrainConfig, file))
    result = json.loads(command("evaluate", file, "--json"))
    shards = open_shards(read_yaml(file)["data"]["shards"])
    every = sum(source.index.ntokens for source in shards.train.values())
    # 20 steps of 8 sequences of 24, of which none is drawn twice but those of the source that is read again.
    seen = result["ngrams"]["trained_on"]
    plan = json.loads(command("plan", file, "--json"))
    assert (
        seen["tokens"]
        == seen["of"]
        == sum(round(row["tokens_trained"] / max(row["epochs"], 1)) for row in plan["sources"].values())
    )
    assert result["ngrams"]["all"] == {"tokens": every, "of": every}
    everything = result["all_sources"]
    assert everything["tokens"] == sum(row["tokens"] for row in result["sources"].values())
    for which in ("trained_on", "all"):
        for kind in ("bigram", "trigram"):
            rows = [(row["ngrams"][which][kind]["loss"], row["tokens"]) for row in result["sources"].values()]
            mean = sum(loss * tokens for loss, tokens in rows) / everything["tokens"]
            assert everything["ngrams"][which][kind]["loss"] == pytest.approx(mean)
            # Each token has three successors: a pair tells what a single token cannot.
            assert mean < everything["unigram"]["loss"] - 1
    assert (
        everything["ngrams"]["all"]["bigram"]["loss"] < everything["ngrams"]["trained_on"]["bigram"]["loss"]
    )

    printed = command("evaluate", file, "--ngram-tokens", "1000")
    blocks = [block for source in shards.train.values() for _, block in source.blocks]
    (line,) = [line for line in printed.splitlines() if line.startswith("all: tokens of the train splits")]
    assert f" of {every:,}, spread evenly (--ngram-tokens)" in line
    assert 1000 - 2 * max(block.ntokens for block in blocks) < int(line.split()[6].replace(",", "")) <= 1000
    assert "bigram" not in command("evaluate", file, "--ngram-tokens", "0")
    other = command("evaluate", file, "--set", "data.weights.wiki=3")
    assert (
        "seen: tokens that the run was trained on: no n-gram models: the run was trained on other data"
        in other
    )
    assert "stages.1.slots.wiki: 4 -> 24" in other
    assert "bigram, all" in other and "bigram, seen" not in other


def test_what_the_guard_skipped_was_not_trained_on(write_config: Callable[..., Path], tmp_path: Path) -> None:
    file = write_config()
    train(load(TrainConfig, file))
    before = json.loads(command("evaluate", file, "--json", "--ngram-tokens", "99999"))["ngrams"]
    entry = {"v": 1, "entry": 1, "kind": "skip", "step": 3, "time": ""}
    (tmp_path / "run/journal.jsonl").write_text(json.dumps(entry) + "\n")
    after = json.loads(command("evaluate", file, "--json", "--ngram-tokens", "100000"))["ngrams"]
    assert 0 < before["trained_on"]["tokens"] - after["trained_on"]["tokens"] <= 8 * 24
    assert after["all"] == before["all"]


def test_unigram_losses_smooth_by_one() -> None:
    train_counts, scored = np.array([2, 0, 1]), np.array([1, 1, 0])
    assert baselines.unigram_losses(train_counts, scored) == pytest.approx(-math.log(3 / 6) - math.log(1 / 6))


def test_a_second_evaluation_scores_nothing_again(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = json.loads(command("evaluate", str(finished), "--json"))
    monkeypatch.setattr(
        "corpusmill.train.evaluate.splits.load_model", lambda *_, **__: pytest.fail("scored again")
    )
    assert json.loads(command("evaluate", str(finished), "--json")) == first
    stored = tmp_path / "run/evaluation.json"
    stored.write_text(stored.read_text().replace(first["of"], "other weights"))
    with pytest.raises(pytest.fail.Exception, match="scored again"):
        command("evaluate", str(finished), "--json")


def test_evaluate_without_a_checkpoint_says_what_to_do(write_config: Callable[..., Path]) -> None:
    with pytest.raises(UserError, match="no valid checkpoint; run `corpusmill train` first"):
        command("evaluate", str(write_config()))
    with pytest.raises(UserError, match="neither a config"):
        command("evaluate", "nowhere")


def test_generate_is_the_same_for_a_seed(finished: Path, tmp_path: Path) -> None:
    prompt = chr(0x105) + chr(0x110)
    options = ("--prompt", prompt, "--max-tokens", "30", "--temperature", "1")
    one, again = command("generate", finished, *options), command("generate", str(tmp_path / "run"), *options)
    assert one == again and one.startswith(prompt) and len(one) > 4
    assert one != command("generate", finished, *options, "--seed", "1")
    greedy = [
        command("generate", finished, "--temperature", "0", "--seed", str(seed), "--json") for seed in (1, 2)
    ]
    assert greedy[0] == greedy[1]
    with pytest.raises(UserError, match="--top-p: .* greater than 0, is 0"):
        command("generate", finished, "--top-p", "0")


def test_generate_continues_the_prompts_of_a_file(finished: Path, tmp_path: Path) -> None:
    texts = [chr(0x105), chr(0x110) * 3, "", chr(0x112)]
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps({"id": n, "prompt": text}) + "\n" for n, text in enumerate(texts)))
    options = ("--max-tokens", "20", "--temperature", "1", "--seed", "3")
    rows = [
        json.loads(line) for line in command("generate", finished, "--prompts", file, *options).splitlines()
    ]
    assert [(row["id"], row["prompt"]) for row in rows] == list(enumerate(texts))
    assert all(row["end"] in ("stop", "length") and 0 < row["tokens"] <= 20 for row in rows)
    first = json.loads(command("generate", finished, "--prompt", texts[0], *options, "--json"))
    assert first == {"prompt": texts[0], "text": rows[0]["text"], "end": rows[0]["end"]}
    drafted = command("generate", finished, "--prompts", file, "--temperature", "0", "--draft", "prompt")
    assert drafted == command("generate", finished, "--prompts", file, "--temperature", "0", "--batch", "1")
    stop = command("generate", finished, "--prompt", texts[0], *options, "--stop", rows[0]["text"][2:4])
    assert stop.strip() == (texts[0] + rows[0]["text"][:2]).strip()


def test_prompts_that_are_none_are_named(finished: Path, tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    with pytest.raises(UserError, match="no such file"):
        command("generate", finished, "--prompts", file)
    for line in ("text", "[1]", '{"text": "a"}'):
        file.write_text('{"prompt": "a"}\n\n' + line)
        with pytest.raises(UserError, match='line 3 is not a JSON object with a text "prompt"'):
            command("generate", finished, "--prompts", file)
    with pytest.raises(UserError, match="give one of them"):
        command("generate", finished, "--prompts", file, "--prompt", "a")
    # A line ends with a line feed alone: a text may hold other separators.
    file.write_text('{"prompt": "\u0105", "note": "a\u2028b"}\n', encoding="utf-8")
    assert json.loads(command("generate", finished, "--prompts", file))["note"] == "a\u2028b"


def test_plan_counts_what_the_run_will_read(write_config: Callable[..., Path]) -> None:
    file = write_config()
    result = json.loads(command("plan", file, "--json"))
    config = load(TrainConfig, file)
    shards = open_shards(config.data.shards)
    at = order(make_plan(config.data, shards, config.seed), np.arange(20 * 8))
    assert set(result["sources"]) == set(shards.train)
    for index, (name, row) in enumerate(result["sources"].items()):
        assert row["tokens_trained"] == int((at.source == index).sum()) * 24
        assert row["tokens_available"] == shards.train[name].index.ntokens
        assert at.epoch[at.source == index].max() in (math.ceil(row["epochs"]) - 1, math.ceil(row["epochs"]))
        assert 0 < row["tokens_unused"] < row["blocks"] * 24 + 24
    assert result["tokens"] == 20 * 8 * 24 and result["warnings"] == []
    many = json.loads(
        command("plan", file, "--set", "schedule.steps=200", "--set", "schedule.warmup_steps=2", "--json")
    )
    assert any(
        "'code' is read 12" in warning and "schedule.steps to" in warning for warning in many["warnings"]
    )
    assert "not read: code" in command("plan", file, "--set", "data.weights={wiki: 1, books: 1}")


def test_batch_names_the_documents_that_the_step_took(write_config: Callable[..., Path]) -> None:
    from corpusmill.train.data import StreamingTokens

    file = write_config()
    config = load(TrainConfig, file)
    shards = open_shards(config.data.shards)
    with StreamingTokens(shards, plan=make_plan(config.data, shards, config.seed)) as stream:
        batches = [next(stream) for _ in range(3)]
    result = json.loads(command("batch", file, "--step", "3", "--json"))
    assert [row["n"] for row in result["sequences"]] == list(range(16, 24))
    for row, labels, documents in zip(
        result["sequences"], batches[2]["labels"], batches[2]["documents"], strict=True
    ):
        source = shards.train[row["source"]]
        number = next(i for i, (_, block) in enumerate(source.blocks) if block.key == row["block"])
        blocks = Blocks([source])
        data, member = blocks.get([(0, number)])[0, number], blocks.documents((0, number))
        blocks.close()
        [[low, high]] = row["tokens"]
        assert labels.tolist() == data.tokens[low:high].tolist()
        ends = [*member.token_starts[1:], len(data.tokens)]
        expected = [
            doc for doc, start, end in zip(member.doc_ids, member.token_starts, ends, strict=True)
            if start < high and end > low
        ]  # fmt: skip
        assert [document["doc_id"] for document in row["documents"]] == expected
        assert int(documents.max()) + 1 == len(expected)
    assert "doc_id" in command("batch", file, "--step", "1000000")


@pytest.mark.parametrize("packing", ["windows", "best_fit"])
def test_batch_shows_the_part_of_a_rank_and_its_text(write_config: Callable[..., Path], packing: str) -> None:
    from tokenizers import Tokenizer

    from corpusmill.train.data import StreamingTokens

    settings = {"data.packing": packing, "data.sequence_ramp": {2: 12}, "data.batch_ramp": {2: 16}}
    file = write_config(**settings)
    config = load(TrainConfig, file)
    shards = open_shards(config.data.shards)
    plan, tokenizer = (
        make_plan(config.data, shards, config.seed),
        Tokenizer.from_str(shards.tokenizer().decode()),
    )
    with StreamingTokens(shards, plan=plan, dp_rank=1, dp_world=2) as stream:
        for step in (1, 2, 3):
            batch = next(stream)
            options = ("--step", str(step), "--rank", "1", "--world", "2")
            result = json.loads(command("batch", file, *options, "--text", "--json"))
            assert [row["n"] for row in result["sequences"]] == batch["n"].tolist()
            assert [row["slot"] for row in result["sequences"]] == list(
                range(len(batch["n"]), 2 * len(batch["n"]))
            )
            for row, labels, documents in zip(
                result["sequences"], batch["labels"], batch["documents"], strict=True
            ):
                assert row["text"] == tokenizer.decode(labels.tolist(), skip_special_tokens=False)
                assert (
                    len(row["documents"])
                    == len({d["doc_id"] for d in row["documents"]})
                    <= int(documents.max()) + 1
                )
    printed = command("batch", file, *options, "--text")
    assert all(row["text"] in printed for row in result["sequences"])
    with pytest.raises(UserError, match="--rank 2: must be 0 to 1"):
        command("batch", file, "--step", "1", "--rank", "2", "--world", "2")
    with pytest.raises(UserError, match="--world 3: the batch of step 1 holds 8 sequences"):
        command("batch", file, "--step", "1", "--rank", "2", "--world", "3")


def test_plan_shows_stages_skips_and_what_they_cost(write_config: Callable[..., Path]) -> None:
    settings = {
        "data.stages": [{"from_step": 11, "weights": {"books": 1}}], "data.batch_ramp": {5: 16}, "data.skip": {3: 2},
    }  # fmt: skip
    file = write_config(**settings)
    result = json.loads(command("plan", file, "--json"))
    assert [stage["from_step"] for stage in result["stages"]] == [1, 6, 11]
    assert result["tokens"] == (5 * 16 + 15 * 8) * 24 and result["tokens_skipped"] == 2 * 16 * 24
    assert [result["sources"][name]["slots"] for name in ("wiki", "books")] == [[8, 4, 0], [4, 2, 8]]
    assert result["sources"]["books"]["tokens_trained"] == (5 * 4 + 5 * 2 + 10 * 8) * 24
    printed = command("plan", file, "--world", "2")
    assert "skipped: 768 tokens" in printed and "from step 6: 8 sequences of 24 tokens" in printed
    for cap, named in (("1", "'books' would be read 2"), ("{wiki: 0.5}", "'wiki' would be read")):
        with pytest.raises(UserError, match=named + r".* set schedule\.steps to \d+, or raise max_epochs to"):
            command("plan", file, "--set", f"data.max_epochs={cap}")


def test_the_steps_that_a_cap_advises_are_the_most_it_allows(write_config: Callable[..., Path]) -> None:
    import re

    file = write_config(**{"schedule.warmup_steps": 1, "schedule.steps": 300})
    with pytest.raises(UserError) as error:
        command("plan", file, "--set", "data.max_epochs=3")
    steps = int(re.findall(r"schedule\.steps to (\d+)", str(error.value))[0])
    name = re.findall(r"'(\w+)' would", str(error.value))[0]
    caps = f"data.max_epochs={{{name}: 3}}"
    command("plan", file, "--set", caps, "--set", f"schedule.steps={steps}")
    with pytest.raises(UserError):
        command("plan", file, "--set", caps, "--set", f"schedule.steps={steps + 1}")
