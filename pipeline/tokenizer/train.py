"""Training byte-level BPE (Sennrich et al. 2016; bytes as in GPT-2), and its Hugging Face config."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from pipeline.bpe.encode import chunks
from schemas.tokenizer import TokenizerParams


def train(texts: pa.ChunkedArray, params: TokenizerParams) -> bytes:
    """`tokenizer.json` for these texts. All 256 bytes are in the alphabet, so no text is unknown; the end
    of a document is a special token. Equal texts give equal bytes, for any number of threads."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=params.vocab_size,
        min_frequency=params.min_frequency,
        special_tokens=[params.eos_token],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(chunks(texts), trainer)
    return (str(tokenizer.to_str(pretty=True)) + "\n").encode()


def config(eos_token: str, eos_id: int) -> bytes:
    """`tokenizer_config.json`, with which `transformers.AutoTokenizer` loads the folder."""
    special = {
        "content": eos_token,
        "lstrip": False,
        "normalized": False,
        "rstrip": False,
        "single_word": False,
    }
    content: dict[str, Any] = {
        "added_tokens_decoder": {str(eos_id): {**special, "special": True}},
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "eos_token": eos_token,
        "model_max_length": int(1e30),
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()
