"""Masked rows: how many tokens are hidden and by what, whole words alone, the same in any layout and after any restart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models

from corpusmill.common.errors import UserError
from corpusmill.common.hugging_face import alphabet
from corpusmill.common.storage import Folder
from corpusmill.common.token_text import TokenText
from corpusmill.schemas.masking import MaskingConfig
from corpusmill.train.data import StreamingTokens
from corpusmill.train.data.masking import SCORED, Masking, Words
from corpusmill.train.data.pack import IGNORED, Rows
from tests.train.conftest import EOS, VOCAB, write_shards

MASK = VOCAB  # the only special token beside the end of text
SIZE = 1000


@pytest.fixture(scope="module")
def masked_shards(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return write_shards(Folder(tmp_path_factory.mktemp("masked") / "shards"), specials=("<|mask|>",))


def stream(shards: Folder, masking: dict[str, Any] | None = None, **options: Any) -> StreamingTokens:
    base: dict[str, Any] = {"sequence_length": 24, "global_batch": 8, "window_blocks": 2, "seed": 3}
    return StreamingTokens(shards.url, masking=masking or {}, **{**base, **options})


def words(size: int = SIZE, lengths: int = 3) -> Words:
    """Token 0 ends documents; of the others every `lengths`-th begins a word, and those behind it continue it."""
    ids = np.arange(size)
    return Words(left=(ids % lengths != 0) & (ids > 0), right=ids > 0, ordinary=ids > 0)


def rows_of(text: np.ndarray, begins: list[int] | None = None) -> Rows:
    tokens = np.concatenate((np.zeros((len(text), 1), np.int64), text[:, :-1]), axis=1)
    return Rows(tokens, text, lambda _: np.array(begins or [], dtype=np.int64))


@pytest.mark.parametrize("share", [0.15, 0.3])
@pytest.mark.parametrize("whole_words", [True, False])
def test_shares_are_those_of_the_config(share: float, whole_words: bool) -> None:
    rng = np.random.default_rng(0)
    text = rng.integers(1, SIZE, (1000, 2048))
    text[rng.random(text.shape) < 0.02] = EOS
    masking = Masking(MaskingConfig(share=share, whole_words=whole_words), words(lengths=2), SIZE, seed=5)
    made = masking(rows_of(text), np.arange(1000), np.zeros(1000, np.int64))
    hidden = made.labels != IGNORED
    ordinary = text != EOS
    assert not (hidden & ~ordinary).any() and (made.tokens[~hidden] == text[~hidden]).all()
    assert (made.labels[hidden] == text[hidden]).all()
    assert hidden.sum() / ordinary.sum() == pytest.approx(share, abs=0.001)
    replaced = made.tokens[hidden] == SIZE
    kept = made.tokens[hidden] == text[hidden]
    other = made.tokens[hidden][~replaced & ~kept]
    assert replaced.mean() == pytest.approx(0.8, abs=0.005) and kept.mean() == pytest.approx(0.1, abs=0.005)
    assert other.min() >= 1 and len(np.unique(other)) == SIZE - 1  # any ordinary token, and no other


def test_words_are_hidden_whole_within_their_document() -> None:
    text = np.tile(np.array([1, 2, 4, 5, 1, 3, 1, 0, 1, 2]), (4000, 1))
    # Ids that 3 divides begin a word; so does what follows an end of text, and what begins a document (position 4).
    of_word = np.array([0, 0, 0, 0, 1, 2, 2, 9, 3, 3])
    masking = Masking(MaskingConfig(share=0.3), words(), SIZE, seed=1)
    made = masking(rows_of(text, [4]), np.arange(4000), np.zeros(4000, np.int64))
    hidden = made.labels != IGNORED
    for word in (0, 1, 2, 3):
        together = hidden[:, of_word == word]
        assert (together == together[:, :1]).all() and together[:, 0].mean() == pytest.approx(0.3, abs=0.03)
    assert abs(np.corrcoef(hidden[:, 0], hidden[:, 4])[0, 1]) < 0.05
    assert not hidden[:, 7].any()


def test_letters_make_words_and_wide_ones_and_parts_of_letters_do_as_expected() -> None:
    texts = ["the", " cat", "s", "'", "9", ".", "漢", "字", " ", "ü", "\n"]
    pieces = [text.encode() for text in texts] + [b"\xc3", b"\xbc", b"a\xc3"]
    names = {byte: letter for letter, byte in alphabet().items()}
    vocab = {"<|endoftext|>": 0}
    vocab |= {"".join(names[byte] for byte in piece): i for i, piece in enumerate(pieces, 1)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>", "<|mask|>"])
    found = Words.of(TokenText(tokenizer.to_str().encode(), 0, "tokenizer.json"), len(vocab) + 3)
    ids = {piece: i for i, piece in enumerate(pieces, 1)}

    def joined(left: bytes, right: bytes) -> bool:
        row = np.array([[ids[left], ids[right]]])
        return not found.starts(row, np.zeros_like(row))[0, 1]

    assert (
        joined(b"the", b"s") and joined(b" cat", b"s") and joined(b"s", b"9") and joined(b"9", "ü".encode())
    )
    assert not joined(b"the", b" cat") and not joined(b"s", b".") and not joined(b"'", b"s")
    assert not joined("漢".encode(), "字".encode()) and not joined(b"the", "漢".encode())
    assert joined(b"\xc3", b"\xbc") and joined(b"a\xc3", b"\xbc") and not joined(b"\n", b"the")
    assert (
        found.ordinary.sum() == len(pieces)
        and not found.ordinary[0]
        and not found.ordinary[len(vocab) :].any()
    )


def test_any_number_of_ranks_and_any_restart_hide_the_same_and_another_epoch_others(
    masked_shards: Folder,
) -> None:
    ramp: dict[str, Any] = {"sequence_ramp": {3: 12}, "batch_ramp": {3: 16}}
    with stream(masked_shards, **ramp) as one:
        alone = [dict(next(one)) for _ in range(6)]
    ranks = [stream(masked_shards, dp_rank=rank, dp_world=4, prefetch=rank, **ramp) for rank in range(4)]
    for whole in alone:
        parts = [next(rank) for rank in ranks]
        for name in ("tokens", "labels", "n"):
            assert torch.equal(torch.cat([part[name] for part in parts]), whole[name]), name
    for rank in ranks:
        rank.close()
    for step in range(6):
        with stream(masked_shards, **ramp) as first:
            for _ in range(step):
                next(first)
            state = first.state_dict()
        with stream(masked_shards, **ramp) as again:
            again.load_state_dict(state)
            for whole in alone[step:]:
                found = next(again)
                assert all(torch.equal(found[name], whole[name]) for name in whole)
    # Rows of one sequence are not hidden alike; nor is a sequence that comes again.
    seen: dict[tuple[int, ...], list[torch.Tensor]] = {}
    with stream(masked_shards, {"whole_words": False, "masked": 1.0, "random": 0.0}) as masked:
        for step in range(60):
            batch = next(masked)
            if not step:
                assert not torch.equal(batch["labels"][0] >= 0, batch["labels"][1] >= 0)
            for tokens, labels in zip(batch["tokens"], batch["labels"], strict=True):
                text = tuple(torch.where(labels >= 0, labels, tokens).tolist())
                seen.setdefault(text, []).append(labels >= 0)
    repeated = [masks for masks in seen.values() if len(masks) > 1]
    assert len(repeated) > 20 and not any(torch.equal(masks[0], masks[1]) for masks in repeated)


def test_the_text_is_that_of_the_plain_stream_and_hidden_tokens_alone_are_labels(
    masked_shards: Folder,
) -> None:
    plain = StreamingTokens(masked_shards.url, sequence_length=24, global_batch=8, window_blocks=2, seed=3)
    with plain, stream(masked_shards, {"masked": 1.0, "random": 0.0}) as masked:
        assert plain.all_labels and not masked.all_labels
        for _ in range(8):
            a, b = next(plain), next(masked)
            hidden = b["labels"] >= 0
            assert torch.equal(b["documents"], a["documents"]) and torch.equal(b["n"], a["n"])
            assert torch.equal(torch.where(hidden, b["labels"], b["tokens"]), a["labels"])
            assert bool((b["tokens"][hidden] == MASK).all()) and not (b["tokens"][~hidden] == MASK).any()
            assert not (a["labels"][hidden] == EOS).any() and 0 < hidden.float().mean() < 0.5
    with stream(masked_shards, shift_labels=False) as unshifted, stream(masked_shards) as masked:
        a, b = next(unshifted), next(masked)
        assert torch.equal(a["input_ids"], b["tokens"]) and torch.equal(a["labels"], b["labels"])
        assert torch.equal(a["position_ids"], b["positions"].long())


def test_validation_hides_the_same_fifteen_percent_whatever_the_run_hides() -> None:
    rng = np.random.default_rng(0)
    text = rows_of(rng.integers(1, SIZE, (200, 512)))
    numbers = np.arange(200), np.zeros(200, np.int64)
    runs = [Masking(MaskingConfig(share=share), words(), SIZE, seed) for share, seed in ((0.15, 1), (0.4, 2))]
    first, second = (run.fixed(text, *numbers) for run in runs)
    assert (first.tokens == second.tokens).all() and (first.labels == second.labels).all()
    hidden = first.labels != IGNORED
    assert hidden.mean() == pytest.approx(SCORED, abs=0.005) and (first.tokens[hidden] == SIZE).all()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"masking": {"token": "<|mask"}}, "tokenizer.json; did you mean '<|mask|>'? (they are: <|endoftext|>, <|mask|>); add it to special_tokens"),
        ({"infill": {}}, "data.infill.prefix_token: "),
        ({"masking": {"masked": 0.9, "random": 0.2}}, "masked 0.9 and random 0.2 are more than 1 together"),
        ({"masking": {}, "infill": {}}, "masking and infill exclude each other"),
        ({"infill": {}, "cross_documents": True}, "set cross_documents to false"),
        ({"infill": {"middle_token": "<|fim_prefix|>"}}, "must be three different tokens"),
        ({"masking": {}, "fold": {"of": 3, "index": 0}}, "leave fold out"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_line(masked_shards: Folder, data: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        StreamingTokens(masked_shards.url, sequence_length=24, global_batch=8, **data)
    assert message in str(error.value) and "\n" not in str(error.value).strip()


def test_a_part_of_each_word_is_hidden_once() -> None:
    rng = np.random.default_rng(1)
    text = rng.integers(0, SIZE, (20, 300))
    parts = Masking(MaskingConfig(), words(), SIZE, 0).parts(text, np.zeros_like(text), 7)
    assert (parts[text == EOS] == -1).all() and set(np.unique(parts[text != EOS])) == set(range(7))
    counts = np.bincount(parts[text != EOS])
    assert counts.max() / counts.min() < 1.6
    starts = words().starts(text, np.zeros_like(text))
    inside = ~starts[:, 1:]
    assert (parts[:, 1:][inside] == parts[:, :-1][inside]).all()
