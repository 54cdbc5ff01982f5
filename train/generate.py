"""Sampling from the newest checkpoint, token by token; no piece of text ends inside a character."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.data.shards import run_vocabulary
from corpusmill.train.evaluate import load_model, newest_checkpoint
from corpusmill.train.parallel.mesh import join
from corpusmill.train.precision.adapt import autocast
from corpusmill.train.run_folder import TOKENIZER


def generate(
    config: TrainConfig,
    run: Folder,
    prompt: str = "",
    *,
    max_tokens: int = 100,
    temperature: float = 0.8,
    top_k: int = 50,
    top_p: float = 0.95,
    seed: int = 0,
) -> Iterator[str]:
    """Pieces of text that continue `prompt`, until end-of-text or `max_tokens`; equal arguments, equal text.

    A document starts with the end-of-text token, as in training. Temperature 0: always the most probable token. Raises
    `UserError` for numbers out of range or a run without a valid checkpoint.
    """
    checks = {
        "max_tokens": (max_tokens >= 1, "at least 1"), "temperature": (temperature >= 0, "at least 0"),
        "top_k": (top_k >= 0, "at least 0 (0: no limit)"), "top_p": (0 < top_p <= 1, "above 0 and at most 1"),
    }  # fmt: skip
    for name, (fine, allowed) in checks.items():
        if not fine:
            raise UserError(f"--{name.replace('_', '-')}: must be {allowed}, is {locals()[name]}")
    from tokenizers import Tokenizer
    from tokenizers.decoders import DecodeStream

    kept = run_vocabulary(config, run)
    device = join(config).device
    model = load_model(config, newest_checkpoint(run), kept.vocab_size, device)
    tokenizer = Tokenizer.from_str((run / TOKENIZER).read().decode("utf-8"))
    tokens = [kept.eos_id, *tokenizer.encode(prompt).ids]
    generator = torch.Generator().manual_seed(seed)
    text = DecodeStream(skip_special_tokens=True)
    for _ in range(max_tokens):
        with torch.inference_mode(), autocast(config, device):
            context = torch.tensor([tokens[-config.data.sequence_length :]], device=device)
            logits = model(context)[0, -1, : kept.vocab_size].float().cpu()
        tokens.append(choose(logits, temperature, top_k, top_p, generator))
        if tokens[-1] == kept.eos_id:
            return
        piece = text.step(tokenizer, tokens[-1])
        if piece:
            yield piece


def choose(logits: Tensor, temperature: float, top_k: int, top_p: float, generator: torch.Generator) -> int:
    """One token id of logits [V]: the `top_k` likeliest, of these the fewest that hold `top_p` (Holtzman et al. 2020)."""
    if temperature == 0:
        return int(logits.argmax())
    values, ids = torch.sort(logits / temperature, descending=True, stable=True)
    share = torch.softmax(values[: top_k or len(values)], dim=0)
    share = torch.where(share.cumsum(0) - share < top_p, share, 0.0)  # the one that crosses top_p stays
    return int(ids[torch.multinomial(share, 1, generator=generator)])
