"""Texts of one's own: each token once, with the context that the stride leaves, and figures by definition."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common.config import load
from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.evaluation import TEXTS, TextResults
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.evaluate.splits import load_model, newest_checkpoint
from corpusmill.train.evaluate.texts import evaluate_texts, windows
from corpusmill.train.run_folder import TOKENIZER
from tests.train.evaluate.tasks.runs import VOCAB


@given(st.integers(0, 60), st.integers(2, 12), st.data())
def test_windows_score_each_token_once_after_all_that_fits(
    length: int, longest: int, data: st.DataObject
) -> None:
    stride = data.draw(st.integers(1, longest))
    tokens = list(range(1, length + 1))
    scored = []
    for query in windows(tokens, 0, longest, stride):
        assert len(query.context) + len(query.continuation) - 1 <= longest
        whole = [*query.context, *query.continuation]
        assert whole == list(range(whole[0], whole[-1] + 1))
        # Either it begins where the text does, or the window is full.
        assert query.context[0] == 0 or len(whole) - 1 == longest
        assert len(query.continuation) <= (longest if not scored else stride)
        scored += query.continuation
    assert scored == tokens


@pytest.fixture
def texts(tmp_path: Path) -> list[str]:
    page = "A run is published stage by stage; what is there is not made again. " * 30
    found = ["Short.", page, "Ünïcödé — ein Wort", "x"]
    (tmp_path / "own.jsonl").write_text(
        "".join(json.dumps({"body": text}) + "\n" for text in found) + "{}\nnot json\n"
    )
    (tmp_path / "page.txt").write_text(page)
    (tmp_path / "same.jsonl.gz").write_bytes(gzip.compress(json.dumps({"text": page}).encode()))
    return found


def expected(config: TrainConfig, run: Folder, text: str, stride: int, eos: bool = False) -> float:
    """The loss in nats, token by token, each computed alone after its own context."""
    from tokenizers import Tokenizer

    found = newest_checkpoint(run)
    model = load_model(config, found, VOCAB, torch.device("cpu"))
    ids = Tokenizer.from_str((run / TOKENIZER).read().decode()).encode(text, add_special_tokens=False).ids
    ids = [0, *ids, *([0] if eos else [])]
    longest, loss = config.data.sequence_length, 0.0
    for at in range(1, len(ids)):
        block = 0 if at <= longest else 1 + (at - longest - 1) // stride
        end = min(longest + block * stride, len(ids) - 1)
        context = torch.tensor([ids[max(0, end - longest) : at]])
        with torch.no_grad():
            loss -= float(model(context)[0, -1, :VOCAB].log_softmax(-1)[ids[at]])
    return loss


@pytest.mark.parametrize(("stride", "eos"), [(None, False), (100, True)])
def test_figures_by_definition(
    reader: Path, tmp_path: Path, texts: list[str], stride: int | None, eos: bool
) -> None:
    config, run = load(TrainConfig, reader / "config.yaml"), Folder(tmp_path / "run")
    for entry in Folder(reader / "run").list():
        (run / entry.path).write((Folder(reader / "run") / entry.path).read())
    found = evaluate_texts(config, run, [str(tmp_path / "own.jsonl")], column="body", stride=stride, eos=eos)
    assert found == TextResults.from_json((run / TEXTS).read(), TEXTS)
    own = found.sets["own.jsonl"]
    assert (own.documents, own.skipped) == (4, {"not JSON": 1, "no text in a column 'body'": 1})
    nats = [expected(config, run, text, stride or 256, eos) for text in texts]
    size = [len(text.encode()) for text in texts]
    assert own.bits_per_byte.value == pytest.approx(sum(nats) / sum(size) / math.log(2), rel=1e-5)
    assert own.document_mean.value == pytest.approx(np.mean(np.divide(nats, size)) / math.log(2), rel=1e-5)
    assert own.token_perplexity == pytest.approx(math.exp(sum(nats) / own.tokens), rel=1e-5)
    words = sum(len(text.split()) for text in texts)
    assert own.word_perplexity == pytest.approx(math.exp(min(sum(nats) / words, 700)), rel=1e-4)


def test_a_text_is_the_same_in_any_file_and_more_context_helps(
    reader: Path, tmp_path: Path, texts: list[str]
) -> None:
    config, run = load(TrainConfig, reader / "config.yaml"), Folder(tmp_path / "run")
    for entry in Folder(reader / "run").list():
        (run / entry.path).write((Folder(reader / "run") / entry.path).read())
    files = [str(tmp_path / "page.txt"), str(tmp_path / "same.jsonl.gz")]
    plain = evaluate_texts(config, run, files)
    one, other = plain.sets.values()
    assert one.bits_per_byte.value == other.bits_per_byte.value and one.documents == 1
    near = evaluate_texts(config, run, files[:1], stride=32).sets["page.txt"]
    assert near.tokens == one.tokens and near.bits_per_byte.value < one.bits_per_byte.value


def test_mistakes_are_one_line(reader: Path, tmp_path: Path, texts: list[str]) -> None:
    config, run = load(TrainConfig, reader / "config.yaml"), Folder(reader / "run")
    for files, more, words in (
        (["own.jsonl"], {}, "--column"), (["page.txt"], {"stride": 257}, "1 to 256"), (["none.jsonl"], {}, "no such file"),
        (["page.txt", "page.txt"], {}, "another file has this name"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=words):
            evaluate_texts(config, run, [str(tmp_path / file) for file in files], **more)  # type: ignore[arg-type]
