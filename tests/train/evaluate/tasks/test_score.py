"""What must not change an item: the order of choices, the batch, company; and a model whose every probability is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from corpusmill.common.hugging_face import library
from corpusmill.schemas.evaluation import Item
from corpusmill.schemas.model import ModelConfig
from corpusmill.schemas.tasks import Task
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.evaluate.scorer import Scorer
from corpusmill.train.evaluate.tasks.data import Row
from corpusmill.train.evaluate.tasks.encode import Encoder
from corpusmill.train.evaluate.tasks.read import find_task
from corpusmill.train.evaluate.tasks.render import Renderer
from corpusmill.train.evaluate.tasks.score import NO_TOKEN, TOO_LONG, Scored, score_choices, score_texts
from corpusmill.train.generate.generate import Opened
from corpusmill.train.generate.runner import Runner
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.parallel.mesh import World
from corpusmill.train.parallel.model import ParallelModel
from tests.train.evaluate.tasks.test_encode import DATA, EOS

LONGEST = 64
TOKENIZER = library(DATA, "test")
VOCAB = TOKENIZER.get_vocab_size()
SIZES = {"dim": 32, "layers": 2, "heads": 4, "ffn_dim": 64, "vocab_multiple": 32, "tie_embeddings": False}
METRICS = ["acc", "acc_norm", "acc_bytes", "acc_mutual_info", "brier_score", "gold_logprob_per_byte"]
KEYS: dict[str, Any] = {
    "task": "t", "output_type": "multiple_choice", "doc_to_text": "{{q}}", "doc_to_choice": "c", "doc_to_target": "g",
    "metric_list": METRICS,
}  # fmt: skip
WORDS = "the corpus is split into shards and a model reads them in order of their hash twice".split()  # noqa: SIM905


def model(unigram: bool = False) -> Decoder:
    made = Decoder(ModelConfig.model_validate(SIZES), VOCAB, seed=2)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.mul_(3.0)
        if unigram:  # every token is the same to the model: attention and layers find no difference
            made.embedding.weight[:] = made.embedding.weight[1].clone()
    return made.eval()


Config = Callable[..., dict[str, Any]]


def scored(made: Decoder, config: Config, task: Task, rows: list[dict[str, Any]], batch: int = 16) -> Scored:
    checked = TrainConfig.model_validate(config(**{"data.sequence_length": LONGEST}))
    scorer = Scorer(ParallelModel([made], World()), checked, World())
    questions = Renderer(task).render([Row(n, row) for n, row in enumerate(rows)], len(rows)).questions
    return score_choices(
        task, questions, Encoder(TOKENIZER, EOS), lambda queries: scorer.answers(queries, batch), LONGEST
    )


def some(count: int = 12) -> list[dict[str, Any]]:
    rng = np.random.default_rng(3)

    def words(most: int) -> str:
        return " ".join(rng.choice(WORDS, int(rng.integers(1, most))))

    return [{"q": words(24), "c": [words(6) + "é" for _ in range(4)], "g": n % 4} for n in range(count)]


def close(one: Item, other: Item, order: list[int] | None = None) -> None:
    order = order or list(range(len(one.choices)))
    assert [one.choices[n] for n in order] == other.choices
    np.testing.assert_allclose([one.logprobs[n] for n in order], other.logprobs, atol=1e-4)
    np.testing.assert_allclose([one.unconditional[n] for n in order], other.unconditional, atol=1e-4)
    assert [one.tokens[n] for n in order] == other.tokens and [one.greedy[n] for n in order] == other.greedy
    assert one.metrics == pytest.approx(other.metrics, abs=1e-4)


def test_the_order_of_choices_changes_no_score(config: Config) -> None:
    made, task, rows = model(), Task.model_validate(KEYS), some()
    order = [2, 0, 3, 1]
    turned = [{**row, "c": [row["c"][n] for n in order], "g": order.index(row["g"])} for row in rows]
    there, back = scored(made, config, task, rows).items, scored(made, config, task, turned).items
    assert len(there) == 12 and 0 < sum(item.metrics["acc"] for item in there) < 12
    for one, other in zip(there, back, strict=True):
        close(one, other, order)


def test_the_batch_changes_no_decision(config: Config) -> None:
    made, task, rows = model(), Task.model_validate(KEYS), some()
    for one, other in zip(
        scored(made, config, task, rows, 1).items, scored(made, config, task, rows, 16).items, strict=True
    ):
        close(one, other)
        decisions = ("acc", "acc_norm", "acc_bytes", "acc_mutual_info")
        assert [one.metrics[name] for name in decisions] == [other.metrics[name] for name in decisions]


def test_equal_items_get_equal_numbers(config: Config) -> None:
    rows = some()
    items = scored(model(), config, Task.model_validate(KEYS), [*rows, *rows[::-1]]).items
    for one, other in zip(items[:12], items[12:][::-1], strict=True):
        close(one, other)


def test_a_unigram_model_is_scored_as_it_is_known(config: Config) -> None:
    made = model(unigram=True)
    with torch.no_grad():
        logits = made(torch.tensor([[1, 5, 9]]))[0]
    np.testing.assert_allclose(logits[0], logits[2], atol=1e-4)
    known = logits[0].log_softmax(-1).double().numpy()
    for item in scored(made, config, Task.model_validate(KEYS), some()).items:
        for choice, found, alone, count in zip(
            item.choices, item.logprobs, item.unconditional, item.tokens, strict=True
        ):
            ids = TOKENIZER.encode(f" {choice}", add_special_tokens=False).ids
            assert count == len(ids)
            assert found == pytest.approx(known[ids].sum(), abs=1e-3) == alone
        shares = np.exp(np.array(item.logprobs) - np.logaddexp.reduce(item.logprobs))
        assert item.gold is not None
        assert item.metrics["brier_score"] == pytest.approx(((shares - np.eye(4)[item.gold]) ** 2).sum())


def test_schema_and_one_continuation(config: Config) -> None:
    made = model()
    rows = [
        {
            "sentence": "The model reads the _ of a shard.",
            "option1": "hash",
            "option2": "order",
            "answer": "2",
        }
    ]
    (item,) = scored(made, config, find_task("winogrande").task, rows).items
    assert item.choices == ["The model reads the hash of a shard.", "The model reads the order of a shard."]
    assert item.prompt == "" and item.gold == 1 and item.tokens[0] == item.tokens[1]
    (one,) = scored(
        made, config, find_task("lambada").task, [{"text": "The model reads the order of a shard."}]
    ).items
    assert one.choices == [" shard."] and one.metrics["loglikelihood"] == one.logprobs[0]
    assert one.metrics["acc"] == float(one.greedy[0])
    assert (item.answers, one.answers) == (item.choices[1:], [" shard."])  # what the corpus is searched for


def test_what_a_model_cannot_score_is_counted(config: Config) -> None:
    rows = [
        {"q": "x" * 200, "c": ["a", "b"], "g": 0}, {"q": "x", "c": ["b" * 300, "a"], "g": 0},
        {"q": "x", "c": ["", "a"], "g": 0}, {"q": "x", "c": ["b", "a"], "g": 0},
    ]  # fmt: skip
    found = scored(model(), config, Task.model_validate({**KEYS, "target_delimiter": ""}), rows)
    assert [item.id for item in found.items] == ["0", "3"]
    assert found.skipped == {TOO_LONG: 1, NO_TOKEN: 1}
    assert found.notes == ["1 of 2 prompts are longer than the model's context and lost their beginning"]


def greedy(made: Decoder, prompt: list[int], count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count and EOS not in found:
        with torch.inference_mode():
            found.append(int(made(torch.tensor([[*prompt, *found]]))[0, -1, :VOCAB].argmax()))
    return found


@pytest.mark.parametrize("batch", [1, 3])
def test_texts_are_generated_greedily_until_a_stop(batch: int) -> None:
    made = model()
    runner = Runner(made, VOCAB, EOS, LONGEST)
    task = Task.model_validate(
        {
            "task": "t",
            "doc_to_text": "q",
            "doc_to_target": "a",
            "generation_kwargs": {"until": ["Zz"], "max_gen_toks": 8},
        }
    )
    rows = [Row(n, {"q": row["q"], "a": "x"}) for n, row in enumerate(some(5))]
    questions = Renderer(task).render(rows, 5).questions
    encoder = Encoder(TOKENIZER, EOS)
    found = score_texts(task, questions, encoder, Opened(runner, TOKENIZER, 0), batch)
    texts = []
    for question in questions:
        prompt = TOKENIZER.encode(question.prompt, add_special_tokens=False).ids[-(LONGEST - 8) :] or [EOS]
        tokens = greedy(made, prompt, 8)
        # An unfinished character at the end is left out.
        texts.append(TOKENIZER.decode([token for token in tokens if token != EOS]).rstrip("\ufffd"))
    assert [item.generated for item in found.items] == texts and any(texts)
    assert all(item.answers == item.references == ["x"] for item in found.items)
    stop = next(text for text in texts if len(text.strip()) > 2).strip()[1:3]
    until = task.model_copy(
        update={"generation_kwargs": task.generation_kwargs.model_copy(update={"until": [stop]})}
    )
    stopped = score_texts(until, questions, encoder, Opened(runner, TOKENIZER, 0), batch)
    assert [item.generated for item in stopped.items] == [text.split(stop)[0] for text in texts]
    more = task.model_copy(
        update={"generation_kwargs": task.generation_kwargs.model_copy(update={"max_gen_toks": 99})}
    )
    notes = score_texts(more, questions[:1], encoder, Opened(runner, TOKENIZER, 0)).notes
    assert notes[-1] == "32 tokens are generated at most, half of the model's context, not 99"
