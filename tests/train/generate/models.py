"""Small models for generation, and the generation that nothing is cached in: the whole context again for each token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from corpusmill.common.hugging_face import alphabet
from corpusmill.schemas.model import ModelConfig
from corpusmill.train.generate.generate import Opened
from corpusmill.train.generate.runner import Runner
from corpusmill.train.model.decoder import Decoder

if TYPE_CHECKING:
    from tokenizers import Tokenizer

VOCAB, EOS = 90, 0  # of 96 rows: padding must never be chosen
EOT = "<|endoftext|>"
BYTES = 264  # tokens of `byte_tokenizer`


def model(seed: int = 3, scale: float = 3.0, **settings: Any) -> Decoder:
    """With weights so large that its texts do not repeat one token."""
    base = {"dim": 32, "layers": 2, "heads": 4, "ffn_dim": 64, "vocab_multiple": 32}
    made = Decoder(ModelConfig.model_validate({**base, **settings}), VOCAB, seed)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.mul_(scale)
    return made.eval()


def runner(context: int = 48, **settings: Any) -> Runner:
    return Runner(model(**settings), VOCAB, EOS, context)


def byte_tokenizer() -> Tokenizer:
    """Byte-level, with a few merges and two control tokens: `BYTES` tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = [EOT, *sorted(alphabet()), "th", "the", "in", "Ġthe", "er", "<|im_start|>", "<|im_end|>"]
    merges = [("t", "h"), ("th", "e"), ("i", "n"), ("Ġ", "the"), ("e", "r")]
    tokenizer = Tokenizer(models.BPE(vocab={letter: n for n, letter in enumerate(letters)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([EOT, "<|im_start|>", "<|im_end|>"])
    return tokenizer


def few_bytes() -> Tokenizer:
    """Byte-level, of the 96 tokens of the models that training's tests train: the bytes of characters of two, and a line feed."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = [
        letter
        for letter, byte in alphabet().items()
        if byte == 10 or (0x80 <= byte <= 0xDF and byte not in (0xC0, 0xC1))
    ]
    vocabulary = {EOT: EOS, **{letter: number for number, letter in enumerate(letters, 1)}}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([EOT])
    return tokenizer


def opened(context: int = 256, scale: float = 2.0, seed: int = 3, **settings: Any) -> Opened:
    """A model of random weights for the byte-level tokenizer."""
    base = {"dim": 32, "layers": 2, "heads": 4, "ffn_dim": 64, "vocab_multiple": 32, **settings}
    made = Decoder(ModelConfig.model_validate(base), BYTES, seed)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.mul_(scale)
    return Opened(Runner(made.eval(), BYTES, EOS, context), byte_tokenizer(), 7)


def prompts(count: int, longest: int = 40, seed: int = 0) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randint(0, longest, (count,), generator=generator).tolist()
    return [[EOS, *torch.randint(1, VOCAB, (size,), generator=generator).tolist()] for size in sizes]


def uncached(decoder: Decoder, prompt: Sequence[int], count: int, context: int = 48) -> list[int]:
    """Greedy; a full context goes on with its second half."""
    found: list[int] = []
    window = list(prompt)[-context:]
    while len(found) < count and (not found or found[-1] != EOS):
        if len(window) > context:
            window = window[-(context // 2) :]
        with torch.inference_mode():
            logits = decoder(torch.tensor([window]))[0, -1, :VOCAB]
        found.append(int(logits.argmax()))
        window.append(found[-1])
    return found
