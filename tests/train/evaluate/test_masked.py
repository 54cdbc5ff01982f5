"""Scores of masked language models: each token once and never seen, pseudo-log-likelihoods against one pass a token."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from corpusmill.schemas.masking import MaskingConfig
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.data.masking import Masking, Words
from corpusmill.train.evaluate.masked import MaskedScorer
from corpusmill.train.evaluate.rows import Query
from corpusmill.train.model.losses import IGNORED
from corpusmill.train.parallel.mesh import World
from corpusmill.train.parallel.model import ParallelModel
from tests.train.models import SMALL, model_of

VOCAB, MASK, EOS = 90, 89, 0


def scorer(longest: int = 24, whole_words: bool = True) -> MaskedScorer:
    ids = np.arange(VOCAB)
    ordinary = (ids > 0) & (ids != MASK)
    words = Words(left=(ids % 3 != 0) & ordinary, right=ordinary, ordinary=ordinary)
    config = TrainConfig.model_validate(
        {
            "name": "masked", "precision": "fp32", "device": "cpu", "model": {**SMALL, "causal": False},
            "data": {"shards": "-", "sequence_length": longest, "masking": {"whole_words": whole_words}},
        }
    )  # fmt: skip
    masking = Masking(MaskingConfig(whole_words=whole_words), words, MASK, 0)
    return MaskedScorer(ParallelModel([model_of({"causal": False})]), config, World(), masking, longest)


def batch_of(text: torch.Tensor) -> dict[str, torch.Tensor]:
    """As rows of a split are read: tokens a place before their labels."""
    documents = torch.zeros_like(text)
    documents[:, 9:] = 1
    positions = torch.arange(text.shape[1]).expand_as(text) - 9 * documents
    tokens = torch.cat((torch.zeros_like(text[:, :1]), text[:, :-1]), 1)
    return {"tokens": tokens, "labels": text, "documents": documents, "positions": positions}


def test_each_token_is_scored_once_and_hidden_from_its_own_prediction() -> None:
    found, seen = scorer(), []
    text = torch.randint(1, MASK, (3, 20), generator=torch.Generator().manual_seed(0))
    text[:, 8] = EOS
    forward = found.forward

    def watched(batch: Any, score: Any) -> torch.Tensor:
        seen.append(batch)
        return forward(batch, score)

    found.forward = watched  # type: ignore[method-assign]
    (losses,) = list(found.losses([batch_of(text)]))
    hidden = torch.stack([batch["labels"] != IGNORED for batch in seen])
    assert torch.equal(hidden.sum(0), (text != EOS).long()) and 0.05 < hidden.float().mean() < 0.25
    for batch in seen:
        here = batch["labels"] != IGNORED
        assert bool((batch["tokens"][here] == MASK).all())
        assert torch.equal(batch["tokens"][~here], text[~here])
    assert bool((losses[text == EOS] == 0).all()) and bool((losses[text != EOS].abs() > 0).all())
    # Of a pass: the cross entropy of the plain forward.
    batch = seen[2]
    here = batch["labels"] != IGNORED
    rows = {name: batch[name] for name in ("tokens", "documents", "positions")}
    logits = found.model.parts[0](**rows).detach()
    wanted = F.cross_entropy(logits[here], batch["labels"][here], reduction="none")
    torch.testing.assert_close(losses[here].abs(), wanted)


@pytest.mark.parametrize("whole_words", [True, False])
def test_words_are_hidden_whole_where_training_hides_them_so(whole_words: bool) -> None:
    text = torch.tensor([[3, 4, 5, 6, 7, 9, 1, 2, 3, 1]]).repeat(40, 1)
    text[:, 0] = torch.arange(40) // 2 * 3 + 3  # which word it is decides where it goes
    found = scorer(whole_words=whole_words)
    together = 0
    for part in found._parts(batch_of(text)):
        hidden = part["labels"] != IGNORED
        together += int((hidden[:, 0] == hidden[:, 1]).sum())
    assert (together == 7 * 40) == whole_words


def test_answers_are_those_of_one_pass_a_token() -> None:
    found = scorer()
    queries = [
        Query([EOS], [3, 4, 7, 6]), Query([5, 6, 7], [8, 1]), Query([EOS, 3], [9]), Query([2] * 30, [3, 5]),
        Query([EOS], [12, 13, 14, 15, 16, 17, 18]),
    ]  # fmt: skip
    answers = found.answers(queries, rows=1)
    model = found.model.parts[0]
    for query, answer in zip(queries, answers, strict=True):
        context = list(query.context[1:] if query.context[0] == EOS else query.context)
        text = torch.tensor([*context, *query.continuation])[-24:]
        first = len(text) - len(query.continuation)
        wanted, greedy = [], []
        for at in range(first, len(text)):
            end = at + 1
            while end < len(text) and text[end] % 3 != 0:  # the rest of its word
                end += 1
            hidden = text.clone()
            hidden[at:end] = MASK
            logits = model(hidden[None])[0, at].detach()
            wanted.append(float(logits.log_softmax(-1)[text[at]]))
            greedy.append(int(logits.argmax()) == int(text[at]))
        np.testing.assert_allclose(answer.tokens, wanted, rtol=1e-4, atol=1e-5)
        assert answer.greedy == all(greedy)


def test_a_continuation_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="a continuation of 25 tokens, the model has 24 positions"):
        scorer().answers([Query([EOS], [3] * 25)])
