"""`corpusmill export`: the newest checkpoint as a folder that `transformers` loads, with equal logits."""

from __future__ import annotations

import json
from typing import Any

import torch

from corpusmill.common.errors import UserError
from corpusmill.common.hugging_face import config as tokenizer_config
from corpusmill.common.hugging_face import special_tokens_map
from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig
from corpusmill.train import checkpoint
from corpusmill.train.data.shards import open_shards
from corpusmill.train.evaluate.evaluate import newest_checkpoint
from corpusmill.train.run_folder import TOKENIZER, write_json
from corpusmill.train.tools.convert.architecture import Architecture, Part, architecture

CONFIG, GENERATION, WEIGHTS, INDEX = (
    "config.json", "generation_config.json", "model.safetensors", "model.safetensors.index.json",
)  # fmt: skip
SHARD_BYTES = 5 * 10**9
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
Tensors = dict[str, torch.Tensor]


def export(
    config: TrainConfig, run: Folder, out: Folder, dtype: str = "float32", shard_bytes: int = SHARD_BYTES
) -> dict[str, Any]:
    """Write the model of a run to `out`; what was written. config.json, which makes it a model, comes last.

    Raises `UserError` for a model that has no counterpart there, or an `out` that holds one.
    """
    if dtype not in DTYPES:
        raise UserError(f"--dtype: must be {', '.join(DTYPES)}, is '{dtype}'")
    if (out / CONFIG).exists():
        raise UserError(f"{out}: holds a {CONFIG} already; name an empty folder")
    vocabulary = open_shards(config.data.shards).set
    rows = config.model.padded(vocabulary.vocab_size)
    made = architecture(config.model, rows, config.data.sequence_length)
    found = newest_checkpoint(run)
    count, size = write_weights(out, made, checkpoint.read_tensors(found), DTYPES[dtype], shard_bytes)
    tokenizer = (run / TOKENIZER).read()
    end = token(tokenizer, vocabulary.eos_id)
    (out / TOKENIZER).write(tokenizer)
    (out / "tokenizer_config.json").write(tokenizer_config(tokenizer, end))
    (out / "special_tokens_map.json").write(special_tokens_map(tokenizer, end))
    # In training a document follows an end-of-text token: generation begins with one.
    ends = {"bos_token_id": vocabulary.eos_id, "eos_token_id": vocabulary.eos_id}
    write_json(out / GENERATION, ends)
    write_json(out / CONFIG, {"architectures": [made.name], **made.config, **ends, "torch_dtype": dtype})
    return {"output": out.url, "architecture": made.name, "step": found.step, "files": count, "bytes": size}


def token(tokenizer: bytes, number: int) -> str:
    """The added token of a tokenizer.json that has this number."""
    added = json.loads(tokenizer).get("added_tokens", [])
    return str(next(row["content"] for row in added if row["id"] == number))


def write_weights(
    out: Folder, made: Architecture, ours: Tensors, dtype: torch.dtype, shard_bytes: int
) -> tuple[int, int]:
    """All parts, in order, in files of at most `shard_bytes` (or one tensor); (files, bytes of tensors)."""
    from safetensors.torch import save

    files: list[list[Part]] = [[]]
    size, total = 0, 0
    for part in made.parts:
        found = [ours[source] for source in part.sources]
        needed = sum(x.numel() // (1 if part.expert is None else len(x)) for x in found) * dtype.itemsize
        if files[-1] and size + needed > shard_bytes:
            files.append([])
            size = 0
        files[-1].append(part)
        size, total = size + needed, total + needed
    places: dict[str, str] = {}
    for number, parts in enumerate(files, 1):
        name = WEIGHTS if len(files) == 1 else f"model-{number:05d}-of-{len(files):05d}.safetensors"
        tensors = {part.name: theirs(part, ours).to(dtype).contiguous() for part in parts}
        (out / name).write(save(tensors, metadata={"format": "pt"}))
        places.update(dict.fromkeys(tensors, name))
    if len(files) > 1:
        write_json(out / INDEX, {"metadata": {"total_size": total}, "weight_map": places})
    return len(files), total


def theirs(part: Part, ours: Tensors) -> torch.Tensor:
    """The tensor of a part."""
    if not part.sources:
        return torch.empty(part.shape)
    found = torch.cat([ours[source] for source in part.sources])
    found = found if part.expert is None else found[part.expert]
    return found.T if part.transposed else found
