"""`corpusmill export`: the newest checkpoint as a folder that `transformers` loads, with equal logits; and the way back, a
model in that layout as the start of ours, its config compared, each of its tensors accounted for."""

from __future__ import annotations

import json
import re
from typing import Any

import torch

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.hugging_face import config as tokenizer_config
from corpusmill.common.hugging_face import special_tokens_map, vocabulary
from corpusmill.common.storage import Folder
from corpusmill.schemas.conversations import TEMPLATE
from corpusmill.schemas.model import ModelConfig
from corpusmill.schemas.training import TrainConfig
from corpusmill.train import checkpoint
from corpusmill.train.data.conversations.model import template_in
from corpusmill.train.data.opening import run_vocabulary
from corpusmill.train.data.rewriting import special_id
from corpusmill.train.evaluate.splits import load_model, newest_checkpoint
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.run_folder import TOKENIZER, write_json
from corpusmill.train.tools.architecture import Architecture, Part, architecture

CONFIG, GENERATION, WEIGHTS, INDEX = (
    "config.json", "generation_config.json", "model.safetensors", "model.safetensors.index.json",
)  # fmt: skip
SHARD_BYTES = 5 * 10**9
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
Tensors = dict[str, torch.Tensor]


def export(
    config: TrainConfig, run: Folder, out: Folder, dtype: str = "float32", shard_bytes: int = SHARD_BYTES
) -> dict[str, Any]:
    """Write the model of a run to `out`, an adapter merged into its weights; returns a summary. config.json, which makes the folder a
    model, is written last.

    Raises `UserError` for a model without a counterpart in that layout, or if `out` holds one already.
    """
    dtype_named(dtype)  # refuses early
    refuse_model_in(out)
    made = architecture_of(config, run)
    found = newest_checkpoint(run)
    count, size = write_model(config, run, out, made, trained_tensors(config, run, found), dtype, shard_bytes)
    return {
        "output": out.url, "architecture": made.name, "step": found.step, "files": count, "bytes": size,
        **left_out(config.model),
    }  # fmt: skip


def left_out(model: ModelConfig) -> dict[str, str]:
    """For the summary of an export: what of the model is not in it, because nothing but training uses it."""
    return {"left_out": f"model.mtp: {model.mtp} layers for further tokens"} if model.mtp else {}


def trained_tensors(config: TrainConfig, run: Folder, found: checkpoint.Checkpoint) -> Tensors:
    """Of the decoder in a checkpoint of a run, by name; adapters are merged into its weights."""
    if config.adapter is None:
        return checkpoint.read_tensors(found)
    size = run_vocabulary(config, run).vocab_size
    return load_model(config, found, size, torch.device("cpu"), masked=True).state_dict()


def refuse_model_in(out: Folder) -> None:
    """Raise `UserError` if `out` holds a model."""
    if (out / CONFIG).exists():
        raise UserError(f"{out}: holds a {CONFIG} already; name an empty folder")


def architecture_of(config: TrainConfig, run: Folder) -> Architecture:
    """Of a run's model, or what `config` has in its place. Raises `UserError` by key if there is none."""
    if config.adapter is not None and config.adapter.virtual:
        raise UserError(
            f"adapter.kind: {config.adapter.kind}: no weights of a model stand for virtual tokens: `corpusmill export --format peft`"
            " writes them, to be read beside the model of init_from"
        )
    rows = config.model.padded(run_vocabulary(config, run).vocab_size)
    return architecture(config.model, rows, config.data.sequence_length)


def write_model(
    config: TrainConfig, run: Folder, out: Folder, made: Architecture, ours: Tensors, dtype: str = "float32",
    shard_bytes: int = SHARD_BYTES,
) -> tuple[int, int]:  # fmt: skip
    """Write tensors of a decoder to `out` with all that a model in this layout has beside them, the tokenizer that of the run;
    (files, bytes of tensors)."""
    count, size = write_weights(out, made, ours, dtype_named(dtype), shard_bytes)
    eos = run_vocabulary(config, run).eos_id
    tokenizer = (run / TOKENIZER).read()
    end = token(tokenizer, eos)
    (out / TOKENIZER).write(tokenizer)
    template = template_in(run)
    if template is not None:
        (out / TEMPLATE).write(template.encode())
    mask = None if config.data.masking is None else config.data.masking.token
    (out / "tokenizer_config.json").write(tokenizer_config(tokenizer, end, template, mask))
    (out / "special_tokens_map.json").write(special_tokens_map(tokenizer, end, mask))
    # In training a document follows an end-of-text token: generation begins with one.
    ends = {"bos_token_id": eos, "eos_token_id": eos}
    if mask is None:
        write_json(out / GENERATION, ends)
    else:
        ends["mask_token_id"] = special_id(tokenizer, str(run / TOKENIZER), mask, "masking.token")
    write_json(out / CONFIG, {"architectures": [made.name], **made.config, **ends, "torch_dtype": dtype})
    return count, size


def dtype_named(name: str) -> torch.dtype:
    """The type of the option `--dtype`. Raises `UserError` for another name."""
    if name not in DTYPES:
        raise UserError(f"--dtype: must be {', '.join(DTYPES)}, is '{name}'")
    return DTYPES[name]


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
    found = found if part.scale == 1 else found * part.scale
    found = found if part.turned is None else found[order(len(found), *part.turned)]
    return found.T if part.transposed else found


def order(rows: int, heads: int, size: int) -> torch.Tensor:
    """The numbers of our rows in their order, int64 [rows], where the last `size` of each head's are pairs of neighbours (`Part.turned`)."""
    places = torch.arange(rows).view(heads, -1)
    plain, turned = places[:, :-size], places[:, -size:].view(heads, 2, -1).transpose(1, 2).flatten(1)
    return torch.cat((plain, turned), dim=1).flatten()


# Tensors of older files that are no weights: causal masks, frequencies of RoPE.
NO_WEIGHTS = re.compile(r"\.attn\.(masked_)?bias$|\.rotary_emb\.inv_freq$")
# Keys of config.json that do not change the outputs of this model, for rows of its length.
FREE = {"max_position_embeddings", "attention_dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop", "output_router_logits", "pad_token_id"}  # fmt: skip
# Other names of a key in later releases.
ALSO = {"num_experts": "num_local_experts", "n_routed_experts": "num_local_experts"}
# Values of keys that a file does not name (the defaults of `transformers`).
DEFAULTS: dict[str, Any] = {
    "rope_theta": 10000.0, "rope_scaling": None, "attention_bias": False, "mlp_bias": False, "sliding_window": None,
    "scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "use_sliding_window": False,
    "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new", "mlp_only_layers": [], "decoder_sparse_step": 1,
    "rope_interleave": True,
}  # fmt: skip


@torch.no_grad()
def load_weights(model: Decoder, folder: Folder, tokenizer: bytes) -> None:
    """Load the weights of the model in `folder`.

    Raises `UserError` naming the keys in which its config.json differs from the config's model, or if its tokenizer numbers
    tokens differently from the shards' `tokenizer`, and `WorkError` naming tensors that are missing, surplus or of another
    shape.
    """
    if model.config.mtp:
        raise UserError(f"model.mtp: {folder} has no layers for further tokens (it would have to be null)")
    rows = model.embedding.num_embeddings
    made = architecture(model.config, rows, model.config.max_positions)
    compare(made, read_json(folder / CONFIG), folder)
    if (folder / TOKENIZER).exists() and vocabulary((folder / TOKENIZER).read()) != vocabulary(tokenizer):
        raise UserError(
            f"{folder / TOKENIZER}: is not the tokenizer of the shards; make shards with it, or move it away if its"
            " tokens have the same numbers"
        )
    ours = model.state_dict()
    wanted = {part.name: part for part in made.parts}
    problems, seen = list[str](), set[str]()
    for name in files(folder):
        for found, tensor in read_tensors(folder / name, wanted).items():
            part = wanted.get(found)
            if part is None:
                problems.append(f"{found} is surplus")
                continue
            seen.add(found)
            if not part.sources:
                continue
            into = [
                ours[source] if part.expert is None else ours[source][part.expert] for source in part.sources
            ]
            value = tensor.T if part.transposed else tensor
            shape = (sum(len(x) for x in into), *into[0].shape[1:])
            if tuple(value.shape) != shape:
                there, here = tuple(tensor.shape), shape[::-1] if part.transposed else shape
                problems.append(f"{found} is {there}, this model has {here}")
                continue
            if part.turned is not None:
                value = value[order(len(value), *part.turned).argsort()]
            for target, piece in zip(into, torch.split(value, [len(x) for x in into]), strict=True):
                target.copy_(piece if part.scale == 1 else piece / part.scale)
    problems += [f"{name} is missing" for name, part in wanted.items() if part.sources and name not in seen]
    if problems:
        more = f" (and {len(problems) - 5} more)" if len(problems) > 5 else ""
        raise WorkError(f"{folder}: does not fit this model: {'; '.join(problems[:5])}{more}")


def compare(made: Architecture, found: dict[str, Any], folder: Folder) -> None:
    """Raise `UserError` if config.json describes another model than `made`."""
    name = (found.get("architectures") or ["no architecture"])[0]
    if name != made.name:
        raise UserError(
            f"{folder / CONFIG}: is a {name}, and the config's model section describes a {made.name}"
        )
    found = {**found, **old_rope(found)}
    ours = made.config
    if made.name == "GPT2LMHeadModel":
        defaults = {"tie_word_embeddings": True, "n_inner": 4 * ours["n_embd"]}
    else:
        size = ours["hidden_size"] // ours["num_attention_heads"]
        defaults = {
            "tie_word_embeddings": False, "head_dim": size, "num_key_value_heads": ours["num_attention_heads"],
        }  # fmt: skip
    if made.name == "SmolLM3ForCausalLM":
        found = {"rope_theta": 2e6, **found}
        defaults["tie_word_embeddings"] = True
    lines = []
    for key, here in ours.items():
        theirs = found.get(key, found.get(ALSO.get(key, key), DEFAULTS.get(key)))
        if theirs is None and key in defaults:
            theirs = defaults[key]
        if key not in FREE and not same(here, theirs):
            advice = "; set model.vocab_multiple to 1 or what it was padded to" if key == "vocab_size" else ""
            lines.append(f"{key} is {theirs} there and {here} here{advice}")
    if lines:
        raise UserError(f"{folder / CONFIG}: is another model than the config's: {'; '.join(lines)}")


def old_rope(found: dict[str, Any]) -> dict[str, Any]:
    """`rope_theta` and `rope_scaling` as `transformers` 4 wrote them, out of that or of 5's `rope_parameters`."""
    rope = dict(found.get("rope_parameters") or found.get("rope_scaling") or {})
    rope["rope_type"] = rope.get("rope_type", rope.pop("type", "default"))
    outer = {key: rope.pop(key) for key in ("rope_theta", "partial_rotary_factor") if key in rope}
    return {**outer, "rope_scaling": None if rope["rope_type"] == "default" else rope}


def same(ours: Any, theirs: Any) -> bool:
    """Equal, floats to rounding; of a mapping (`rope_scaling`) the keys that ours has."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return all(same(value, theirs.get(key)) for key, value in ours.items())
    if isinstance(ours, float) and isinstance(theirs, int | float):
        return abs(ours - theirs) <= 1e-6 * abs(ours)
    return bool(ours == theirs)


def files(folder: Folder) -> list[str]:
    """Names of the weights' files."""
    if (folder / INDEX).exists():
        return sorted(set(read_json(folder / INDEX)["weight_map"].values()))
    return [WEIGHTS]


def read_json(file: Folder, what: str = "a model in the Hugging Face layout") -> dict[str, Any]:
    """The object that a folder's config file holds. Raises `UserError` if there is no such file, naming `what` the folder is not, and if
    it is not JSON."""
    try:
        value = json.loads(file.read())
    except FileNotFoundError:
        raise UserError(f"{file.parent}: is not {what}: it has no {file.name}") from None
    except ValueError:
        raise UserError(f"{file}: is not JSON") from None
    return dict(value)


def read_tensors(file: Folder, wanted: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Of one file, by the names of the whole model: GPT-2's first files name the inner model's."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        found = load(file.read())
    except FileNotFoundError:
        raise WorkError(f"{file}: no such file (weights must be safetensors)") from None
    except SafetensorError as error:
        raise WorkError(f"{file}: not a safetensors file: {error}") from None
    return {
        f"transformer.{name}" if name not in wanted and f"transformer.{name}" in wanted else name: tensor
        for name, tensor in found.items()
        if not NO_WEIGHTS.search(name)
    }
