"""The Hugging Face architecture of a model, its config.json, and the source of each of its tensors.

A model that no architecture computes exactly is rejected, naming the key: nothing is approximated.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from corpusmill.common.errors import UserError
from corpusmill.schemas.model import ModelConfig
from corpusmill.train.model.rope import ntk_theta

DEEPSEEK = ("DeepseekV3ForCausalLM", "Glm4MoeForCausalLM")  # whose experts have one form


class Part(NamedTuple):
    """A tensor of theirs: the concatenation of ours along the first dimension, or one expert of a stack, perhaps
    transposed. Without `sources` it is one of `shape` that holds no number. `scale`: theirs is ours times this (factors of muP,
    which they have not). `turned`: (heads, P), if the last P rows of each head, whose pairs are (i, i + P/2), are (2 i, 2 i + 1) there."""

    name: str
    sources: tuple[str, ...]
    transposed: bool = False
    expert: int | None = None
    shape: tuple[int, ...] = ()
    scale: float = 1.0
    turned: tuple[int, int] | None = None


class Architecture(NamedTuple):
    """`config`: the keys of config.json that decide what the model computes; `parts`: all of its tensors."""

    name: str
    config: dict[str, Any]
    parts: list[Part]


def architecture(model: ModelConfig, vocab_rows: int, length: int) -> Architecture:
    """The architecture of a model with `vocab_rows` rows of embedding, trained on `length` positions. Raises `UserError` by
    key if there is none."""
    require(
        model,
        "no architecture of the Hugging Face layout has them",
        value_embeddings="none",
        value_residual=False,
        reward_head=False,
        attention_softcap=None,
        attention_sinks=False,
        logit_softcap=None,
    )
    if not model.causal:
        return _eurobert(model, vocab_rows, length)
    if model.positions == "learned":
        return _gpt2(model, vocab_rows)
    shared = _llama(model, vocab_rows, length)
    name, more = _latent(model) if model.mla else _experts(model) if model.moe else _dense(model)
    if model.mla:  # which has its own
        del shared["head_dim"]
    return Architecture(name, {**shared, **more}, list(_parts(model, name)))


def _eurobert(model: ModelConfig, vocab_rows: int, length: int) -> Architecture:
    """Llama's layers with attention to both sides (Boizard et al. 2025)."""
    why = "EuroBERT, which attends to both sides, has it otherwise"
    require(
        model,
        why,
        positions="rope",
        bias=False,
        qk_norm=False,
        mla=None,
        moe=None,
        window=None,
        nope_every=None,
    )
    more = {
        "model_type": "eurobert",
        "attention_bias": False,
        "mlp_bias": False,
        "pad_token_id": None,
    }
    name = "EuroBertForMaskedLM"
    return Architecture(name, {**_llama(model, vocab_rows, length), **more}, list(_parts(model, name)))


def _llama(model: ModelConfig, vocab_rows: int, length: int) -> dict[str, Any]:
    """Keys of config.json that architectures with RMSNorm, SwiGLU and RoPE share."""
    require(
        model,
        "no architecture of the Hugging Face layout with RoPE has it exactly",
        norm="rmsnorm",
        activation="swiglu",
    )
    return {
        "vocab_size": vocab_rows,
        "hidden_size": model.dim,
        "intermediate_size": model.hidden,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.key_value_heads,
        "head_dim": model.head_size,
        "hidden_act": "silu",
        "rms_norm_eps": model.norm_eps,
        "tie_word_embeddings": model.tie_embeddings,
        "attention_dropout": 0.0,
        **_rope(model, length),
    }


def require(model: ModelConfig, why: str, **wanted: Any) -> None:
    """Raise `UserError` for the first key of the model (`moe_x`: of its experts) that is not as wanted."""
    for key, value in wanted.items():
        of_experts = key.startswith("moe_")
        found = getattr(model.moe, key[4:]) if of_experts else getattr(model, key)
        if found != value:
            shown = key.replace("moe_", "moe.", 1) if of_experts else key
            raise UserError(
                f"model.{shown}: {found}: {why} (it would have to be {'null' if value is None else value})"
            )


def _dense(model: ModelConfig) -> tuple[str, dict[str, Any]]:
    """Llama; Qwen3 with QK-norm; SmolLM3 with local layers or without rotary positions in some."""
    biases = {"attention_bias": model.bias, "mlp_bias": model.bias}
    if model.qk_norm:
        require(model, "Qwen3, which has model.qk_norm, has no bias in the feed-forward", bias=False)
        require(model, "Qwen3, which has model.qk_norm, has rotary positions in every layer", nope_every=None)
        return "Qwen3ForCausalLM", {"model_type": "qwen3", "attention_bias": False, **_windows(model)}
    if model.window is None and model.nope_every is None:
        return "LlamaForCausalLM", {"model_type": "llama", **biases}
    rotated = [int(model.is_rotated(layer)) for layer in range(model.layers)]
    # Its default token of padding is one of a larger vocabulary.
    return "SmolLM3ForCausalLM", {
        "model_type": "smollm3", "pad_token_id": None, "no_rope_layers": rotated, **biases, **_windows(model),
    }  # fmt: skip


def _windows(model: ModelConfig) -> dict[str, Any]:
    if model.window is None:
        return {"use_sliding_window": False}
    kinds = [
        "sliding_attention" if model.is_local(layer) else "full_attention" for layer in range(model.layers)
    ]
    # Both count the position itself.
    return {"use_sliding_window": True, "sliding_window": model.window, "layer_types": kinds}


def _experts(model: ModelConfig) -> tuple[str, dict[str, Any]]:
    """Softmax scores: Mixtral, or Qwen3-MoE with QK-norm; sigmoid scores: GLM-4.5, routed as DeepSeek-V3."""
    moe = model.moe
    assert moe is not None
    require(model, "no architecture with experts has it exactly", bias=False, window=None, nope_every=None)
    width = moe.ffn_dim or model.hidden
    if moe.scores == "sigmoid":
        require(model, "GLM-4.5, which has sigmoid scores, has experts in every layer after the first dense ones",
                moe_every=1)  # fmt: skip
        return "Glm4MoeForCausalLM", {
            "model_type": "glm4_moe", "attention_bias": False, "use_qk_norm": model.qk_norm, "partial_rotary_factor": 1.0,
            **_routed(model),
        }  # fmt: skip
    require(model, "architectures with softmax scores have none", moe_shared_experts=0)
    if moe.balance == "bias":
        raise UserError(
            "model.moe.balance: bias: architectures with softmax scores choose without one (it would have to be loss or none)"
        )
    if model.qk_norm:
        dense = [layer for layer in range(model.layers) if not model.has_experts(layer)]
        return "Qwen3MoeForCausalLM", {
            "model_type": "qwen3_moe", "attention_bias": False, "use_sliding_window": False, "norm_topk_prob": True,
            "moe_intermediate_size": width, "num_experts_per_tok": moe.top_k, "num_experts": moe.experts,
            "decoder_sparse_step": 1, "mlp_only_layers": dense, "output_router_logits": False,
        }  # fmt: skip
    require(model, "Mixtral has experts in every layer (Qwen3-MoE need not, but has model.qk_norm)",
            moe_first=0, moe_every=1)  # fmt: skip
    return "MixtralForCausalLM", {
        "model_type": "mixtral", "intermediate_size": width, "num_experts_per_tok": moe.top_k,
        "num_local_experts": moe.experts, "sliding_window": None, "output_router_logits": False,
    }  # fmt: skip


def _latent(model: ModelConfig) -> tuple[str, dict[str, Any]]:
    """DeepSeek-V3, all of whose layers may be dense."""
    mla, moe = model.mla, model.moe
    assert mla is not None
    require(model, "DeepSeek-V3, which has model.mla, has it otherwise", window=None, nope_every=None)
    found = {
        "model_type": "deepseek_v3", "attention_bias": False, "kv_lora_rank": mla.kv_rank, "q_lora_rank": mla.q_rank,
        "qk_nope_head_dim": mla.nope_head_dim, "qk_rope_head_dim": mla.rope_head_dim, "v_head_dim": mla.value_head_dim,
        "rope_interleave": True, "first_k_dense_replace": model.layers,
    }  # fmt: skip
    if moe is not None:
        why = "DeepSeek-V3, which has model.mla, has sigmoid scores, and experts in every layer after the first dense ones"
        require(model, why, moe_scores="sigmoid", moe_every=1)
        found.update(_routed(model))
    return "DeepseekV3ForCausalLM", found


def _routed(model: ModelConfig) -> dict[str, Any]:
    """Keys of DeepSeek-V3's experts, which GLM-4.5 has too."""
    moe = model.moe
    assert moe is not None
    return {
        "moe_intermediate_size": moe.ffn_dim or model.hidden, "num_experts_per_tok": moe.top_k, "n_routed_experts": moe.experts,
        "n_shared_experts": moe.shared_experts, "first_k_dense_replace": moe.first, "norm_topk_prob": True,
        "routed_scaling_factor": 1.0, "n_group": 1, "topk_group": 1,
    }  # fmt: skip


def _rope(model: ModelConfig, length: int) -> dict[str, Any]:
    scaling, theta = model.rope_scaling, model.rope_theta
    if scaling is None:
        return {"max_position_embeddings": length, "rope_theta": theta, "rope_scaling": None}
    if scaling.kind == "ntk":  # the same as another theta
        raised = ntk_theta(theta, scaling.factor, model.rope_size)
        return {"max_position_embeddings": length, "rope_theta": raised, "rope_scaling": None}
    found: dict[str, Any] = {"rope_type": scaling.kind, "factor": scaling.factor}
    if scaling.kind != "linear":
        # Some releases take the factor of yarn from the ratio of the two lengths.
        length = round(scaling.original_length * scaling.factor)
        if length != scaling.original_length * scaling.factor:
            raise UserError(
                f"model.rope_scaling.factor: {scaling.factor:g} x original_length {scaling.original_length} is no whole"
                " number of positions, and the Hugging Face layout states that number"
            )
        found["original_max_position_embeddings"] = scaling.original_length
    names = {"yarn": ("beta_fast", "beta_slow"), "llama3": ("low_freq_factor", "high_freq_factor")}
    found.update({name: getattr(scaling, name) for name in names.get(scaling.kind, ())})
    if model.mla and scaling.kind == "yarn":  # of all scores, not of what is rotated alone
        found.update(mscale=1.0, mscale_all_dim=1.0)
    return {"max_position_embeddings": length, "rope_theta": theta, "rope_scaling": found}


def _parts(model: ModelConfig, name: str) -> Iterator[Part]:
    """Of the architectures that name things as Llama does."""

    def linear(theirs: str, ours: str, scale: float = 1.0) -> Iterator[Part]:
        for kind in ("weight", "bias") if model.bias else ("weight",):
            yield Part(f"{theirs}.{kind}", (f"{ours}.{kind}",), scale=scale)

    yield Part("model.embed_tokens.weight", ("embedding.weight",))
    for i in range(model.layers):
        theirs, ours = f"model.layers.{i}", f"layers.{i}"
        yield Part(f"{theirs}.input_layernorm.weight", (f"{ours}.attention_norm.weight",))
        yield Part(f"{theirs}.post_attention_layernorm.weight", (f"{ours}.ffn_norm.weight",))
        queries = {"q": model.query_scale}
        yield from _latent_parts(model, f"{theirs}.self_attn", f"{ours}.attention") if model.mla else ()
        for x in "" if model.mla else "qkvo":
            scale = 1.0 if model.qk_norm else queries.get(x, 1.0)
            yield from linear(f"{theirs}.self_attn.{x}_proj", f"{ours}.attention.{x}", scale)
        for x in "qk" if model.qk_norm else "":
            norm = f"{ours}.attention.{x}_norm.weight"
            yield Part(f"{theirs}.self_attn.{x}_norm.weight", (norm,), scale=queries.get(x, 1.0))
        if not model.has_experts(i):
            for x in ("gate", "up", "down"):
                yield from linear(f"{theirs}.mlp.{x}_proj", f"{ours}.ffn.{x}")
            continue
        assert model.moe is not None
        mixtral = name == "MixtralForCausalLM"
        block = f"{theirs}.{'block_sparse_moe' if mixtral else 'mlp'}"
        names = ("w1", "w3", "w2") if mixtral else ("gate_proj", "up_proj", "down_proj")
        yield Part(f"{block}.gate.weight", (f"{ours}.ffn.router.weight",))
        if name in DEEPSEEK:
            yield Part(f"{block}.gate.e_score_correction_bias", (f"{ours}.ffn.bias",))
        for expert in range(model.moe.experts):
            for their, our in zip(names, ("gate", "up", "down"), strict=True):
                yield Part(f"{block}.experts.{expert}.{their}.weight", (f"{ours}.ffn.{our}",), False, expert)
        for x in ("gate", "up", "down") if name in DEEPSEEK else ():
            found = (f"{ours}.ffn.shared.{x}.weight",) if model.moe.shared_experts else ()
            empty = (model.dim, 0) if x == "down" else (0, model.dim)
            yield Part(f"{block}.shared_experts.{x}_proj.weight", found, shape=empty)
    yield Part("model.norm.weight", ("norm.weight",), scale=1 / model.width_ratio)
    if not model.tie_embeddings:
        yield Part("lm_head.weight", ("head.weight",))


def _latent_parts(model: ModelConfig, theirs: str, ours: str) -> Iterator[Part]:
    """Of one layer's attention. Whatever their config says of it, others rotate neighbouring dimensions: rows that are rotated change
    places."""
    mla = model.mla
    assert mla is not None
    low, names = mla.q_rank is not None, {"kv_b": "kv_b_proj", "o": "o_proj"}
    names |= {"q_a": "q_a_proj", "q_a_norm": "q_a_layernorm"} if low else {}
    names["kv_a_norm"] = "kv_a_layernorm"
    for our, their in names.items():
        yield Part(f"{theirs}.{their}.weight", (f"{ours}.{our}.weight",))
    query = ("q_b_proj", "q_b") if low else ("q_proj", "q")
    for (their, our), heads in ((query, model.heads), (("kv_a_proj_with_mqa", "kv_a"), 1)):
        turned = heads, mla.rope_head_dim
        yield Part(f"{theirs}.{their}.weight", (f"{ours}.{our}.weight",), turned=turned)


def _gpt2(model: ModelConfig, vocab_rows: int) -> Architecture:
    require(model, "GPT-2, which has learned positions, has it otherwise",
            norm="layernorm", bias=True, qk_norm=False, moe=None, window=None, key_value_heads=model.heads,
            head_size=model.dim // model.heads, mup_base_head_dim=None)  # fmt: skip
    activations = {"gelu": "gelu_new", "relu2": "relu2"}
    if model.activation not in activations:
        raise UserError(
            f"model.activation: {model.activation}: GPT-2, which has learned positions, has no gate (it would have to be gelu or relu2)"
        )
    config = {
        "model_type": "gpt2", "vocab_size": vocab_rows, "n_positions": model.max_positions, "n_embd": model.dim,
        "n_layer": model.layers, "n_head": model.heads, "n_inner": model.hidden,
        "activation_function": activations[model.activation], "layer_norm_epsilon": model.norm_eps,
        "tie_word_embeddings": model.tie_embeddings, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
        "scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False,
    }  # fmt: skip
    parts = [
        Part("transformer.wte.weight", ("embedding.weight",)),
        Part("transformer.wpe.weight", ("position_embedding.weight",)),
    ]
    names = {
        "attn.c_attn": ("attention.q", "attention.k", "attention.v"), "attn.c_proj": ("attention.o",),
        "mlp.c_fc": ("ffn.up",), "mlp.c_proj": ("ffn.down",), "ln_1": ("attention_norm",), "ln_2": ("ffn_norm",),
    }  # fmt: skip
    for i in range(model.layers):
        for theirs, ours in names.items():
            for kind in ("weight", "bias"):
                sources = tuple(f"layers.{i}.{x}.{kind}" for x in ours)
                transposed = kind == "weight" and not theirs.startswith("ln")  # its Conv1D has [in, out]
                parts.append(Part(f"transformer.h.{i}.{theirs}.{kind}", sources, transposed))
    scale = 1 / model.width_ratio
    parts += [Part(f"transformer.ln_f.{kind}", (f"norm.{kind}",), scale=scale) for kind in ("weight", "bias")]
    if not model.tie_embeddings:
        parts.append(Part("lm_head.weight", ("head.weight",)))
    return Architecture("GPT2LMHeadModel", config, parts)
