"""Reinforcement: losses of tokens and advantages by their formulas, rows that hold what was sampled, rewards that rise, exact resume, the
same in two processes, and what is refused."""

from __future__ import annotations

import json
import math
import random
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from corpusmill.common.config import validate
from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.schemas.reinforcement import ReinforcementConfig, RewardRule
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.batch import micro_batches
from corpusmill.train.data.opening import open_run_data
from corpusmill.train.data.stream import StreamingTokens
from corpusmill.train.evaluate.batches import sample
from corpusmill.train.finetune.checks import checks_of
from corpusmill.train.finetune.reinforce import Reinforcement, advantages, token_losses
from corpusmill.train.finetune.rollout import Answered, Prompt, rows_of
from corpusmill.train.finetune.start import starting_model
from corpusmill.train.log.metrics import read_metrics
from corpusmill.train.model.losses import IGNORED
from corpusmill.train.parallel.mesh import World
from corpusmill.train.parallel.model import ParallelModel, build
from corpusmill.train.trainer import train
from tests.forks import launch
from tests.train.finetune.models import base_model, config_of, lines, talk

LOSSES = ("grpo", "dr_grpo", "dapo", "rloo")
WORDS = ("the", "in", "winter", "thin", "her", "rather", "inner", "other")
# Half of ChatML's tokens. Those before an answer matter: the model computes in their places too.
SUM = """\
{%- for message in messages %}
{%- if message.role == 'assistant' %}{{ ' sum: ' }}
{%- generation %}{{ message.content ~ '<|im_end|>' }}{% endgeneration %}
{%- else %}{{ '<|im_start|>' ~ message.content }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ ' sum: ' }}{% endif %}"""
UPPER = {"name": "upper", "matches": "[A-Z]+"}
Make = Callable[..., dict[str, Any]]


def settings(loss: str = "grpo", **more: Any) -> ReinforcementConfig:
    return ReinforcementConfig.model_validate({"loss": loss, "rewards": [UPPER], "group": 4, **more})


def test_losses_of_tokens_are_those_of_the_formula() -> None:
    chance = torch.Generator().manual_seed(1)
    log_p, old, reference = (-torch.rand(40, generator=chance, dtype=torch.float64) for _ in range(3))
    advantage = torch.randn(40, generator=chance, dtype=torch.float64)
    found = token_losses(log_p, old, reference, advantage, beta=0.3, clip=(0.1, 0.2))
    for at, value in enumerate(found.tolist()):
        p, o, r, a = (float(x[at]) for x in (log_p, old, reference, advantage))
        ratio = math.exp(p - o)
        wanted = -min(ratio * a, min(max(ratio, 0.9), 1.2) * a) + 0.3 * (math.exp(r - p) - (r - p) - 1)
        assert value == pytest.approx(wanted, rel=1e-12)
    # With one step for each sample: the policy gradient.
    log_p.requires_grad_()
    token_losses(log_p, log_p.detach(), None, advantage).sum().backward()
    torch.testing.assert_close(log_p.grad, -advantage)
    assert torch.autograd.gradcheck(lambda x: token_losses(x, old, reference, advantage, 0.3).sum(), log_p)


def test_advantages_are_within_groups() -> None:
    rewards = torch.tensor([[1.0, 0.0, 0.0, 1.0], [2.0, 2.0, 2.0, 2.0]], dtype=torch.float64)
    scaled = advantages(settings(), rewards)
    assert scaled[0].tolist() == pytest.approx([0.5 / (math.sqrt(1 / 3) + 1e-4) * s for s in (1, -1, -1, 1)])
    plain = advantages(settings("dr_grpo", scale_rewards=False), rewards)
    assert plain[0].tolist() == [0.5, -0.5, -0.5, 0.5]
    left_out = advantages(settings("rloo"), rewards)
    assert left_out[0].tolist() == pytest.approx([1 - 1 / 3, -2 / 3, -2 / 3, 1 - 1 / 3])
    assert all((found[1] == 0).all() for found in (scaled, plain, left_out))  # equal rewards teach nothing


def test_rewards_are_checked(tmp_path: Path) -> None:
    guide = tmp_path / "style.json"
    rules = [{"id": "short", "max_words": 2}, {"id": "stop", "ends_with": "."}]
    guide.write_text(json.dumps({"name": "short", "rules": rules}))
    answer, whole, style = checks_of(
        [
            RewardRule(name="answer", answer=r"(?:is|=) (-?\d+)"),
            RewardRule(name="whole", matches=r"\d+\."),
            RewardRule(name="style", style=str(guide)),
        ]
    )
    assert [answer(text, "it is 12") for text in ("= 3, is 12", "is 12, = 3", "12", "is 123")] == [1, 0, 0, 0]
    assert answer("no number", "none here") == 0  # nothing is no answer
    assert [whole(text, "") for text in ("12.", " 12. ", "12", "a 12.")] == [1, 1, 0, 0]
    assert [style(text, "") for text in ("a b.", "a b c.", "a b c")] == [1, 0.5, 0]


def test_rows_hold_what_was_sampled() -> None:
    prompts = [Prompt([0, 5, 6, 7], "", 1, 3), Prompt([0, 9], "", 0, 8)]
    answers = [
        Answered(prompts[0], [11, 12, 1], "", False), Answered(prompts[0], [13], "", True),
        Answered(prompts[1], [14, 15, 16, 17, 1], "", False), Answered(prompts[1], [1], "", False),
    ]  # fmt: skip
    made, order = rows_of(answers, length=8, eos=0, first=40)
    found = []
    for row in range(len(made["tokens"])):
        for document in made["documents"][row].unique().tolist():
            here = made["documents"][row] == document
            tokens, labels = made["tokens"][row][here].tolist(), made["labels"][row][here].tolist()
            assert made["positions"][row][here].tolist() == list(range(len(tokens)))
            own = [label for label in labels if label != IGNORED]
            if own:
                found.append((tokens, own, int(made["source_id"][row])))
    wanted = []
    for number in order:
        prompt, tokens = answers[number].prompt, answers[number].tokens
        wanted.append(([*prompt.ids, *tokens[:-1]], tokens, prompt.source))
    assert found == wanted and sorted(order) == [0, 1, 2, 3]
    empty, order = rows_of([], length=8, eos=0, first=0)
    assert (empty["labels"] == IGNORED).all() and order == [] and len(empty["tokens"]) == 1


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """A run from a model that answers in upper or lower case, one as likely as the other."""
    place = tmp_path_factory.mktemp("tuned")
    rows = [talk(f"say {word}", word.upper() if upper else word) for word in WORDS for upper in (0, 1)] * 4
    data = lines(place / "lines.jsonl", rows)
    start = config_of(
        place / "start", data, base_model(place / "base"), **{"schedule.steps": 150, "optimizer.lr": 1e-2}
    )
    train(TrainConfig.model_validate(start))

    def make(name: Path, **more: Any) -> dict[str, Any]:
        own = {
            "loss": "grpo",
            "rewards": [UPPER],
            "group": 8,
            "max_tokens": 12,
            **more.pop("reinforcement", {}),
        }
        given = {
            "schedule.steps": 15,
            "optimizer.lr": 2e-3,
            "log.every": 3,
            "data.conversations.validation_share": 0.4,
            **more,
        }
        return config_of(name, data, start["output"], reinforcement=own, guard={"enabled": False}, **given)

    return make


@pytest.mark.parametrize("loss", LOSSES)
def test_what_is_rewarded_becomes_likelier(loss: str, tuned: Make, tmp_path: Path) -> None:
    beta = 0.05 if loss in ("grpo", "rloo") else 0.0
    config = tuned(tmp_path, reinforcement={"loss": loss, "beta": beta})
    train(TrainConfig.model_validate(config))
    rows = read_metrics(Folder(config["output"]))
    first, last = rows[0]["preference"], rows[-1]["preference"]
    assert last["upper"] > 0.85 > first["upper"] + 0.1 and last["reward"] == last["upper"]
    assert (
        0 <= last["equal_groups"] <= 1 and 1 <= last["tokens"] <= 12 and ("divergence" in last) == bool(beta)
    )
    (held_out,) = rows[-1]["validation_preference"].values()
    assert held_out["upper"] > 0.8 and list(rows[-1]["validation"].values()) == [-held_out["reward"]]


def test_a_resumed_run_is_the_unbroken_one(tuned: Make, tmp_path: Path) -> None:
    config = tuned(tmp_path / "whole", **{"schedule.steps": 8}, reinforcement={"beta": 0.1})
    whole = train(TrainConfig.model_validate(config))
    parts = {**config, "output": str(tmp_path / "parts")}
    train(TrainConfig.model_validate({**parts, "stop_after": 3}))
    assert train(TrainConfig.model_validate(parts))["weights_xxh3"] == whole["weights_xxh3"]


def test_two_processes_learn_what_one_does(tuned: Make, tmp_path: Path) -> None:
    found = {}
    for processes in (1, 2):
        config = tuned(
            tmp_path / str(processes), **{"schedule.steps": 3, "log.every": 1}, reinforcement={"loss": "dapo"}
        )
        file = tmp_path / f"{processes}.json"
        file.write_text(json.dumps(config))
        done = launch(processes, "corpusmill.train", file.rename(file.with_suffix(".yaml")))
        assert done.returncode == 0, done.stdout + done.stderr
        found[processes] = read_metrics(Folder(config["output"]))
    for one, two in zip(found[1], found[2], strict=True):
        assert two["preference"] == pytest.approx(one["preference"], rel=1e-6)  # the same samples
        assert two["grad_norm"] == pytest.approx(one["grad_norm"], rel=1e-3)
        assert two["loss"] == pytest.approx(one["loss"], abs=1e-4)


def test_an_adapter_learns_with_itself_switched_off_as_reference(tuned: Make, tmp_path: Path) -> None:
    config = tuned(tmp_path, **{"adapter.rank": 4, "optimizer.lr": 0.01}, reinforcement={"beta": 0.02})
    train(TrainConfig.model_validate(config))
    rows = read_metrics(Folder(config["output"]))
    assert rows[-1]["preference"]["upper"] > rows[0]["preference"]["upper"] + 0.1
    assert rows[-1]["preference"]["divergence"] > rows[0]["preference"]["divergence"]


def test_the_gradient_is_that_of_the_rewards(tuned: Make, tmp_path: Path) -> None:
    """Of a batch beside one that is computed answer by answer."""
    config = TrainConfig.model_validate(tuned(tmp_path, reinforcement={"loss": "grpo", "group": 3}))
    shards = open_run_data(config)
    model = build(config, shards.set.vocab_size, World())
    model.load_whole(starting_model(config, shards.set.vocab_size, shards.tokenizer()).state_dict())
    objective = Reinforcement(config, model, None, shards, World())
    stream = StreamingTokens(shards, seed=config.seed, **config.data.model_dump(exclude={"shards"}))
    batch = next(stream)
    stream.close()
    parts = micro_batches(objective.prepared(batch, 1), config, 1, torch.device("cpu"))
    of_step = objective.begin(parts)
    model.backward([part.inputs for part in parts], 1 / of_step.units, objective=of_step)
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    for parameter in model.parameters():
        parameter.grad = None
    prompts = objective.sampler.prompts(batch)
    full = torch.full_like(batch["labels"], IGNORED)  # a prompt that leaves no place for an answer
    full[:, -1] = objective.sampler.eos
    documents = torch.zeros_like(batch["documents"])
    assert objective.sampler.prompts({**batch, "labels": full, "documents": documents}) == []
    assert objective.sampler.answers([], 1, 3) == []
    no_end = batch["labels"].masked_fill(batch["labels"] != IGNORED, 5)
    with pytest.raises(WorkError, match="an answer of the data ends without a token that says so"):
        objective.sampler.prompts({**batch, "labels": no_end})
    answers = objective.sampler.answers(prompts, 1, 3)
    assert {one.prompt.reference.lower() for one in answers} <= set(WORDS)
    rewards = objective.rewarded(answers).total.view(-1, 3)
    above = (
        ((rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)).flatten().tolist()
    )
    total = torch.zeros(())
    for answer, by in zip(answers, above, strict=True):
        ids = torch.tensor([[*answer.prompt.ids, *answer.tokens]])
        log_p = ParallelModel([model.parts[0]]).parts[0](ids[:, :-1])[0].log_softmax(-1)
        own = log_p[torch.arange(ids.shape[1] - 1), ids[0, 1:]][len(answer.prompt.ids) - 1 :]
        total = total - by * own.mean() / len(answers)
    total.backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad, rtol=1e-3, atol=1e-6, msg=name)


def test_what_does_not_go_with_it_is_refused(tuned: Make, tmp_path: Path) -> None:
    config = tuned(tmp_path)
    for more, message in (
        ({"objective": {"loss": "simpo"}}, "reinforcement and objective exclude each other"),
        ({"parallel": {"zero": 3}}, "each process generates with the whole model: set parallel.zero to 0"),
        ({"init_from": None}, "a model that was tuned answers prompts of conversations: set data.conv"),
        (
            {"adapter": {"kind": "prefix", "tokens": 3}},
            "is trained on the answers of conversations alone, for the next",
        ),
        ({"guard": {}}, "the guard takes a gradient for a spike"),
        ({"reinforcement": {"rewards": []}}, "rewards"),
        ({"reinforcement": {"rewards": [UPPER, UPPER]}}, "rewards: upper is named twice"),
        (
            {"reinforcement": {"rewards": [{"name": "a"}]}},
            "rule a: has no check: give one of answer, matches, style",
        ),
        ({"reinforcement": {"rewards": [{"name": "a", "answer": "(a)(b)"}]}}, "answer: has 2 groups"),
        ({"reinforcement": {"rewards": [{"name": "a", "answer": "("}]}}, "answer: is no regular expression"),
    ):
        with pytest.raises(UserError, match=message):
            validate(TrainConfig, {**config, **more}, "config")


def right_answers(config: dict[str, Any], start: str) -> float:
    """The share of the answers to held-out prompts that are right, four sampled to each from the model in `start`."""
    checked = TrainConfig.model_validate({**config, "init_from": start})
    shards = open_run_data(checked)
    model = build(checked, shards.set.vocab_size, World())
    model.load_whole(starting_model(checked, shards.set.vocab_size, shards.tokenizer()).state_dict())
    objective = Reinforcement(checked, model, None, shards, World())
    (source,) = shards.validation.values()
    rows = sample(source, checked.data.sequence_length, checked.validation.tokens, 0, 1, 4)
    prompts = [prompt for batch in rows for prompt in objective.sampler.prompts(batch)]
    assert len(prompts) == 400
    return float(objective.rewarded(objective.sampler.answers(prompts, 0, 4)).total.mean())


@pytest.mark.slow
@pytest.mark.timeout(2400)  # the highest limit, by which the suite sorts: the longest test starts first
def test_additions_of_two_digits_become_right_more_often(tmp_path: Path) -> None:
    """On 400 sums that no training saw, after fine-tuning on 4,000 others that leaves half of them wrong: over 3 seeds."""
    sums = [(a, b) for a in range(10, 100) for b in range(10, 100)]
    random.Random(0).shuffle(sums)
    for split, part in (("train", sums[:4000]), ("validation", sums[4000:4400])):
        lines(tmp_path / f"data/sum/{split}/lines.jsonl", [talk(f"{a}+{b}", str(a + b)) for a, b in part])
    template = tmp_path / "sum.jinja"
    template.write_text(SUM)
    shape = {"dim": 64, "layers": 2, "heads": 4, "ffn_dim": 256}
    gains = []
    for seed in range(3):
        place = tmp_path / str(seed)
        common = {
            **{f"model.{key}": value for key, value in shape.items()}, "seed": seed, "optimizer.kind": "muon",
            "data.conversations.template": str(template), "data.sequence_length": 128,
            "checkpoint.every": 10_000, "validation.every": 10_000, "validation.tokens": 100_000, "log.every": 50,
        }  # fmt: skip
        tuned = config_of(
            place / "tuned", str(tmp_path / "data"), base_model(place / "base", seed, **shape),
            **{**common, "schedule.steps": 250, "optimizer.lr": 1e-2, "data.global_batch": 8, "data.micro_batch": 8},
        )  # fmt: skip
        train(TrainConfig.model_validate(tuned))
        rewards = {"rewards": [{"name": "right", "answer": r"\d+"}], "group": 8, "max_tokens": 6, "rows": 128}
        learning = config_of(
            place / "learning", str(tmp_path / "data"), tuned["output"], reinforcement=rewards, guard={"enabled": False},
            **{
                **common, "schedule.steps": 200, "schedule.warmup_steps": 10, "optimizer.lr": 1e-3,
                "data.global_batch": 4, "data.micro_batch": 4,
            },
        )  # fmt: skip
        before = right_answers(learning, tuned["output"])
        train(TrainConfig.model_validate(learning))
        gains.append(right_answers(learning, learning["output"]) - before)
    mean, deviation = statistics.mean(gains), statistics.stdev(gains)
    # Student's t, 95 %, 2 degrees of freedom.
    assert mean >= 0.10 and mean - 4.303 * deviation / math.sqrt(3) > 0, gains
