"""Files of conversations as a shard set: every line is accounted for, rows hold whole documents, and packed documents train as each
alone does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from corpusmill.common.errors import UserError, WorkError
from corpusmill.schemas.conversations import SUMMARY, ConversationConfig, Conversations
from corpusmill.schemas.model import ModelConfig
from corpusmill.schemas.shards import Target
from corpusmill.train.batch import inputs
from corpusmill.train.data.conversations.conversation_set import conversation_set
from corpusmill.train.data.pack import IGNORED
from corpusmill.train.data.preview import previewed
from corpusmill.train.data.shards import Shards, open_shards
from corpusmill.train.data.stream import StreamingTokens
from corpusmill.train.evaluate.baselines import all_blocks
from corpusmill.train.model.decoder import Decoder
from tests.train.finetune.models import MODEL, lines, talk
from tests.train.generate.models import BYTES, byte_tokenizer

LENGTH = 96


@pytest.fixture
def tokenizer(tmp_path: Path) -> str:
    file = tmp_path / "tokenizer.json"
    file.write_text(byte_tokenizer().to_str())
    return str(file)


def made(place: Path, url: str, tokenizer: str, length: int = LENGTH, **config: Any) -> Shards:
    chosen = ConversationConfig(**{"template": "chatml", **config})
    return open_shards(conversation_set(url, str(place / "cache"), chosen, length, tokenizer=tokenizer).url)


def rows(count: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(5)
    words = ["the", "in", "there", "winter", "rather", "thin"]
    return [
        talk(f"{n} " + " ".join(rng.choice(words, rng.integers(1, 6))), " ".join(rng.choice(words, 2)))
        for n in range(count)
    ]


def test_every_line_is_accounted_for(tmp_path: Path, tokenizer: str) -> None:
    place = tmp_path / "data"
    lines(
        place / "a.jsonl", [*rows(40), {"nothing": 1}, talk("x" * 300, "y" * 300), {"text": "the whole text"}]
    )
    (place / "a.jsonl").open("a").write("\n{broken\n")
    lines(place / "b/train/x.jsonl", rows(3))
    lines(place / "b/validation/x.jsonl", rows(2))
    shards = made(tmp_path, str(place), tokenizer, validation_share=0.25)
    about = Conversations.from_json((shards.folder / SUMMARY).read(), SUMMARY)
    a, b = about.sources["a"], about.sources["b"]
    assert (a.lines, a.kept, sum(a.quarantined.values())) == (44, 41, 3) and a.formats == {
        "messages": 41,
        "text": 1,
    }
    assert (b.lines, b.kept, b.documents) == (5, 5, 5) and about.marked
    bad = [json.loads(line) for line in (shards.folder / "quarantine.jsonl").read().splitlines()]
    assert [(row["line"], row["reason"].partition(":")[0].partition(" has")[0]) for row in bad] == [
        (41, "no conversation"), (42, "its last turn"), (45, "not JSON"),
    ]  # fmt: skip
    for name, share in (("a", 0.25), ("b", 0.4)):
        held, kept = shards.validation[name].index.ndocs, shards.train[name].index.ndocs
        assert held + kept == about.sources[name].documents and abs(held / (held + kept) - share) < 0.255
    assert shards.validation["b"].index.ndocs == 2
    labels = sum(
        int((block.targets != Target.context).sum())
        for split in (shards.train, shards.validation)
        for source in split.values()
        for block in all_blocks(source)
        if block.targets is not None
    )
    assert labels == a.labels + b.labels


def test_the_same_lines_give_the_same_bytes_and_are_made_once(tmp_path: Path, tokenizer: str) -> None:
    url = lines(tmp_path / "chat.jsonl", rows(30))
    first, logged = made(tmp_path / "1", url, tokenizer), list[str]()
    again = conversation_set(
        url,
        str(tmp_path / "1/cache"),
        ConversationConfig(template="chatml"),
        LENGTH,
        tokenizer=tokenizer,
        log=logged.append,
    )
    assert again.url == first.folder.url and "reused" in logged[0] and len(logged) == 1
    other = made(tmp_path / "2", url, tokenizer)
    for entry in first.folder.list():
        assert (first.folder / entry.path).read() == (other.folder / entry.path).read(), entry.path
    (first.folder / "index.json").delete()  # as a kill leaves it
    assert made(tmp_path / "1", url, tokenizer).train.keys() == {"chat"}
    assert made(tmp_path / "1", url, tokenizer, train_on="last").folder.url != first.folder.url


def test_rows_hold_whole_conversations(tmp_path: Path, tokenizer: str) -> None:
    url = lines(tmp_path / "chat.jsonl", rows(60))
    shards = made(tmp_path, url, tokenizer)
    source = shards.train["chat"]
    (block,) = all_blocks(source)
    assert source.index.row_tokens == LENGTH and (len(block.tokens) - 1) % LENGTH == 0
    edges = np.arange(1, len(block.tokens), LENGTH)
    assert np.isin(edges[1:], block.starts).all() and (block.tokens[edges - 1] == shards.set.eos_id).all()
    with StreamingTokens(shards, sequence_length=LENGTH, global_batch=4, seed=1) as stream:
        batch = next(stream)
    end = byte_tokenizer().token_to_id("<|im_end|>")
    for row in range(4):
        scored = batch["labels"][row] != IGNORED
        documents = batch["documents"][row]
        assert batch["tokens"][row, 0] == shards.set.eos_id
        for document in (
            documents.unique().tolist()
        ):  # each answer ends with the end of its turn, and begins behind its header
            mine = (documents == document) & scored
            assert batch["labels"][row][mine][-1] == end
            assert (batch["tokens"][row][mine.nonzero()[0]] != end).all()
        assert (batch["targets"][row][scored] == Target.answer).all()
        assert (batch["targets"][row][~scored] == Target.context).all()
    with pytest.raises(UserError, match=f"packed in rows of {LENGTH} tokens: set it to {LENGTH}, is 48"):
        StreamingTokens(shards, sequence_length=48, global_batch=4)


def test_packed_documents_have_the_losses_and_gradients_of_each_alone(tmp_path: Path, tokenizer: str) -> None:
    shards = made(tmp_path, lines(tmp_path / "chat.jsonl", rows(20)), tokenizer, validation_share=0.0)
    with StreamingTokens(shards, sequence_length=LENGTH, global_batch=2, seed=1) as stream:
        batch = dict(next(stream))
    model = Decoder(ModelConfig.model_validate(MODEL), BYTES, seed=2).eval()
    model.summed = False
    together = model(**inputs(batch, torch.device("cpu"))[0])
    (together.double().sum()).backward()
    packed = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    model.zero_grad()
    total = torch.zeros((), dtype=torch.float64)
    for row in range(2):
        for document in batch["documents"][row].unique():
            mine = batch["documents"][row] == document
            loss = model(batch["tokens"][row][mine][None], batch["labels"][row][mine][None])
            torch.testing.assert_close(loss[0], together[row][mine], rtol=1e-5, atol=1e-6)
            total = total + loss.double().sum()
    total.backward()
    for one, other in zip(packed, (p.grad for p in model.parameters() if p.grad is not None), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_a_preview_shows_what_is_trained_on(tmp_path: Path, tokenizer: str) -> None:
    url = lines(tmp_path / "chat.jsonl", [talk("one", "two", system="s"), {"text": "the text"}])
    shards = made(tmp_path, url, tokenizer, validation_share=0.0)
    found = {"".join(text for text, _ in document.parts): document.parts for document in previewed(shards, 5)}
    assert len(found) == 2
    assert found["the text<|endoftext|>"] == [("the text<|endoftext|>", "answer")]
    chat = next(parts for text, parts in found.items() if "one" in text)
    assert [part for part in chat if part[1] == "answer"] == [("two<|im_end|>", "answer")]


@pytest.mark.parametrize(
    ("files", "config", "message"),
    [
        ({}, {}, "no file of conversations there"),
        ({"a/b/c.jsonl": ""}, {}, "files of conversations are <source>.jsonl"),
        (
            {"a.jsonl": ""},
            {"template": "chatlm"},
            r"chatlm: no such file, nor a shipped template; did you mean 'chatml'",
        ),
    ],
)
def test_what_cannot_be_read_is_named(
    tmp_path: Path, tokenizer: str, files: dict[str, str], config: dict[str, Any], message: str
) -> None:
    (tmp_path / "data").mkdir()
    for name, text in files.items():
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / name).write_text(text)
    with pytest.raises(UserError, match=message):
        made(tmp_path, str(tmp_path / "data"), tokenizer, **config)


def test_a_tokenizer_without_the_templates_tokens_is_refused(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models

    small = Tokenizer(models.BPE(vocab={"<|endoftext|>": 0, "a": 1}, merges=[]))
    small.add_special_tokens(["<|endoftext|>"])
    file = tmp_path / "small.json"
    file.write_text(small.to_str())
    url = lines(tmp_path / "chat.jsonl", rows(2))
    with pytest.raises(UserError, match=r"chatml needs the special tokens <\|im_start\|> and <\|im_end\|>"):
        made(tmp_path, url, str(file))
    with pytest.raises(WorkError, match="no line of .* is in a row; it says why"):
        made(tmp_path, lines(tmp_path / "bad.jsonl", [{"no": 1}]), str(file), template="plain")
    with pytest.raises(UserError, match="name a tokenizer.json, or a model in init_from"):
        conversation_set(url, str(tmp_path / "c"), ConversationConfig(), LENGTH)
