"""A GGUF file read and computed by the conventions of llama.cpp alone: `llama` rotates neighbouring dimensions of a head, `qwen3` its
halves; matrices are [out, in]."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Fields = dict[str, Any]
Tensors = dict[str, Tensor]


def read(path: Path) -> tuple[Fields, Tensors]:
    """The keys of a file and its tensors, dequantised."""
    from gguf import GGUFReader, dequantize

    reader = GGUFReader(path)
    fields = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    tensors = {one.name: torch.tensor(dequantize(one.data, one.tensor_type)) for one in reader.tensors}
    return fields, tensors


def logits(fields: Fields, tensors: Tensors, ids: Tensor) -> Tensor:
    """Of ids [T]: [T, V], in float64."""
    weights = {name: value.double() for name, value in tensors.items()}
    arch = fields["general.architecture"]
    key = {name.removeprefix(f"{arch}."): value for name, value in fields.items()}
    heads, size = key["attention.head_count"], key["attention.key_length"]
    groups = heads // key["attention.head_count_kv"]
    base = torch.tensor(key["rope.freq_base"], dtype=torch.float64)
    frequency = base ** -(torch.arange(0, size, 2).double() / key["rope.dimension_count"])
    if key.get("rope.scaling.type") == "linear":
        frequency = frequency / key["rope.scaling.factor"]
    if "rope_freqs.weight" in weights:
        frequency = frequency / weights["rope_freqs.weight"]
    angle = torch.arange(len(ids)).double()[:, None] * frequency

    def norm(x: Tensor, name: str) -> Tensor:
        scale = x.square().mean(-1, keepdim=True) + key["attention.layer_norm_rms_epsilon"]
        return x * scale.rsqrt() * weights[f"{name}.weight"]

    def product(x: Tensor, name: str) -> Tensor:
        return F.linear(x, weights[f"{name}.weight"], weights.get(f"{name}.bias"))

    def rotated(x: Tensor) -> Tensor:  # [H, T, D]
        first, second = (x[..., 0::2], x[..., 1::2]) if arch == "llama" else x.chunk(2, dim=-1)
        turned = first * angle.cos() - second * angle.sin(), second * angle.cos() + first * angle.sin()
        return torch.stack(turned, -1).flatten(-2) if arch == "llama" else torch.cat(turned, -1)

    x = weights["token_embd.weight"][ids]
    for number in range(key["block_count"]):
        block = f"blk.{number}"
        h = norm(x, f"{block}.attn_norm")
        made = [product(h, f"{block}.attn_{name}") for name in "qkv"]
        q, k, v = (one.view(len(ids), -1, size).transpose(0, 1) for one in made)
        if arch == "qwen3":
            q, k = norm(q, f"{block}.attn_q_norm"), norm(k, f"{block}.attn_k_norm")
        q, k = rotated(q), rotated(k)
        k, v = k.repeat_interleave(groups, 0), v.repeat_interleave(groups, 0)
        scores = q @ k.transpose(1, 2) / size**0.5
        scores = scores.masked_fill(torch.ones(len(ids), len(ids)).tril() == 0, float("-inf"))
        x = x + product((scores.softmax(-1) @ v).transpose(0, 1).flatten(1), f"{block}.attn_output")
        h = norm(x, f"{block}.ffn_norm")
        inner = F.silu(product(h, f"{block}.ffn_gate")) * product(h, f"{block}.ffn_up")
        x = x + product(inner, f"{block}.ffn_down")
    head = weights.get("output.weight", weights["token_embd.weight"])
    return norm(x, "output_norm") @ head.T
