"""`corpusmill export --format gguf`: the newest checkpoint as one GGUF file, its keys, tensors and their names those of llama.cpp's
own converter (`convert_hf_to_gguf.py`)."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.schemas.model import ModelConfig
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.data.conversations.model import template_in
from corpusmill.train.data.opening import run_vocabulary
from corpusmill.train.evaluate.splits import newest_checkpoint
from corpusmill.train.model.rope import frequencies
from corpusmill.train.run_folder import TOKENIZER
from corpusmill.train.tools.architecture import Architecture, architecture, require
from corpusmill.train.tools.gguf.vocabulary import Vocabulary, vocabulary
from corpusmill.train.tools.hugging_face import Tensors, left_out, theirs, trained_tensors

if TYPE_CHECKING:
    from gguf import GGUFWriter

# Types of matrices, and the file's own (`gguf.LlamaFileType`).
TYPES = {"f32": ("F32", 0), "f16": ("F16", 1), "q8_0": ("Q8_0", 7), "q4_0": ("Q4_0", 2)}
BLOCK = 32  # weights of a row that share a scale in q8_0 and q4_0
ARCHITECTURES = {"LlamaForCausalLM": "llama", "Qwen3ForCausalLM": "qwen3"}
NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip


def export(config: TrainConfig, run: Folder, out: Folder, kind: str = "f16") -> dict[str, Any]:
    """Write the model of a run to `out`, a file named *.gguf or a folder for one, its matrices in type `kind`; returns a summary.

    The file appears whole. Raises `UserError` for a model or tokenizer that GGUF cannot express, by its key, and if there is such
    a file.
    """
    gguf = _library()
    if kind not in TYPES:
        raise UserError(f"--type: must be {', '.join(TYPES)}, is '{kind}'")
    model, kept = config.model, run_vocabulary(config, run)
    rows = model.padded(kept.vocab_size)
    made = described(model, rows, config.data.sequence_length, kind)
    file = out if out.name.endswith(".gguf") else out / f"{config.name}-{kind.upper()}.gguf"
    if file.exists():
        raise UserError(f"{file}: exists; name another file, or delete it")
    words = vocabulary((run / TOKENIZER).read(), rows, run / TOKENIZER)
    found = newest_checkpoint(run)
    writer = gguf.GGUFWriter(None, ARCHITECTURES[made.name])
    writer.add_name(config.name)
    add_model(writer, model, made, kind)
    add_vocabulary(writer, words, kept.eos_id, template_in(run))
    size = add_tensors(writer, model, made, trained_tensors(config, run, found), kind)
    publish(writer, file)
    return {
        "output": file.url, "architecture": ARCHITECTURES[made.name], "type": kind, "step": found.step, "bytes": size,
        "tokenizer": words.rule.name, "notes": [*words.notes, *(f"left out: {x}" for x in left_out(model).values())],
    }  # fmt: skip


def publish(writer: GGUFWriter, file: Folder) -> None:
    """Write the file, whole or not at all."""
    with tempfile.TemporaryDirectory(prefix="corpusmill-gguf-") as folder:
        path = Path(folder) / "model.gguf"  # the library writes to local files alone
        writer.write_header_to_file(path)
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        with path.open("rb") as source, file.create() as sink:
            shutil.copyfileobj(source, sink, 1 << 20)


def described(model: ModelConfig, rows: int, length: int, kind: str) -> Architecture:
    """The architecture of a model that GGUF can express with matrices of type `kind`; else `UserError`, by key."""
    require(model, "GGUF is written for Llama's and Qwen3's architecture alone",
            causal=True, positions="rope", mla=None, moe=None, window=None, nope_every=None)  # fmt: skip
    made = architecture(model, rows, length)
    scaling = model.rope_scaling
    if scaling and scaling.kind == "yarn":
        raise UserError(
            "model.rope_scaling.kind: yarn: llama.cpp scales attention by options of its own (it would have to be linear, ntk or"
            " llama3)"
        )
    if scaling and scaling.kind == "llama3" and model.qk_norm:
        raise UserError(
            "model.rope_scaling.kind: llama3: llama.cpp has no such scaling for Qwen3, which has model.qk_norm (it would have to be"
            " linear or ntk)"
        )
    if kind in ("q8_0", "q4_0"):
        widths = {
            "dim": model.dim,
            "ffn_dim": model.hidden,
            "heads x head_dim": model.heads * model.head_size,
        }
        for key, width in widths.items():
            if width % BLOCK:
                raise UserError(
                    f"model.{key}: {width} is no multiple of {BLOCK}, as --type {kind} needs; give f16 or f32"
                )
    return made


def add_model(writer: GGUFWriter, model: ModelConfig, made: Architecture, kind: str) -> None:
    """The keys that decide what the model computes."""
    import gguf

    writer.add_type("model")
    writer.add_file_type(TYPES[kind][1])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_vocab_size(made.config["vocab_size"])
    writer.add_context_length(made.config["max_position_embeddings"])
    writer.add_block_count(model.layers)
    writer.add_embedding_length(model.dim)
    writer.add_feed_forward_length(model.hidden)
    writer.add_head_count(model.heads)
    writer.add_head_count_kv(model.key_value_heads)
    writer.add_key_length(model.head_size)
    writer.add_value_length(model.head_size)
    writer.add_layer_norm_rms_eps(model.norm_eps)
    writer.add_rope_dimension_count(model.head_size)
    writer.add_rope_freq_base(made.config["rope_theta"])
    if model.rope_scaling and model.rope_scaling.kind == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(model.rope_scaling.factor)


def add_vocabulary(writer: GGUFWriter, words: Vocabulary, eos: int, template: str | None) -> None:
    """The keys of the tokenizer. Text begins with the end of a document, as in training."""
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(words.rule.name)
    writer.add_token_list(words.tokens)
    writer.add_token_types(words.types)
    writer.add_token_merges(words.merges)
    writer.add_bos_token_id(eos)
    writer.add_eos_token_id(eos)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    if words.notes:
        writer.add_string("corpusmill.tokenizer.notes", "; ".join(words.notes))
    if template:
        writer.add_chat_template(template)


def add_tensors(writer: GGUFWriter, model: ModelConfig, made: Architecture, ours: Tensors, kind: str) -> int:
    """The tensors, matrices in type `kind`; returns their bytes."""
    size = 0
    for name, value in tensors(model, made, ours):
        stored = encoded(name, value, kind)
        writer.add_tensor(name, stored, raw_dtype=_type(name, value, kind))
        size += stored.nbytes
    return size


def tensors(model: ModelConfig, made: Architecture, ours: Tensors) -> Iterator[tuple[str, torch.Tensor]]:
    """Names and values of all tensors, float32. The `llama` architecture rotates neighbouring dimensions where ours rotates the
    halves of a head, so rows of queries and keys change places; `qwen3` has halves too."""
    turned = (
        {"attn_q": model.heads, "attn_k": model.key_value_heads} if made.name == "LlamaForCausalLM" else {}
    )
    for part in made.parts:
        name, value = _name(part.name), theirs(part, ours).float()
        heads = turned.get(name.split(".")[-2])
        yield name, value if heads is None else interleaved(value, heads)
    scaling = model.rope_scaling
    if scaling and scaling.kind == "llama3":  # what each pair's frequency is divided by
        plain, _ = frequencies(model.head_size, model.rope_theta, None)
        yield "rope_freqs.weight", plain / frequencies(model.head_size, model.rope_theta, scaling)[0]


def interleaved(value: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows [heads x D, ...] with the pairs (i, i + D/2) of each head beside each other."""
    return (
        value.reshape(heads, 2, len(value) // heads // 2, *value.shape[1:])
        .swapaxes(1, 2)
        .reshape(value.shape)
    )


def encoded(name: str, value: torch.Tensor, kind: str) -> npt.NDArray[Any]:
    """The bytes of a tensor. Raises `WorkError` if a number is not finite, there or in float16."""
    import gguf

    plain: npt.NDArray[np.float32] = value.contiguous().numpy()
    if not np.isfinite(plain).all():
        raise WorkError(
            f"{name}: holds numbers that are not finite: the training diverged, export an earlier checkpoint"
        )
    to = _type(name, value, kind)
    if to == gguf.GGMLQuantizationType.F16 and np.abs(plain).max() > np.finfo(np.float16).max:
        raise WorkError(f"{name}: holds numbers beyond float16; export --type f32")
    found: npt.NDArray[Any] = gguf.quants.quantize(plain, to)
    return found


def _type(name: str, value: torch.Tensor, kind: str) -> Any:
    """float32 for norms, biases and frequencies. Embedding and head, in which an error costs most, have at least 8 bits."""
    import gguf

    if value.ndim < 2:
        return gguf.GGMLQuantizationType.F32
    ends = name in ("token_embd.weight", "output.weight")
    return gguf.GGMLQuantizationType["Q8_0" if ends and kind == "q4_0" else TYPES[kind][0]]


def _name(part: str) -> str:
    """`model.layers.3.mlp.up_proj.weight` -> `blk.3.ffn_up.weight`."""
    stem, _, kind = part.rpartition(".")
    layer = re.fullmatch(r"model\.layers\.(\d+)\.(.*)", stem)
    return f"blk.{layer[1]}.{NAMES[layer[2]]}.{kind}" if layer else f"{NAMES[stem]}.{kind}"


def _library() -> Any:
    try:
        import gguf
        import gguf.quants
    except ImportError:
        raise UserError(
            "export --format gguf: needs the package gguf: pip install 'corpusmill[gguf]'"
        ) from None
    return gguf
