"""Small models of every kind, by the architecture of the Hugging Face layout that each one is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from corpusmill.schemas.model import ModelConfig
from corpusmill.train.model.decoder import Decoder

SMALL: dict[str, Any] = {"dim": 32, "layers": 3, "heads": 4, "ffn_dim": 48, "vocab_multiple": 8}
MOE = {"experts": 4, "top_k": 2, "ffn_dim": 24}
SOFTMAX = {**MOE, "scores": "softmax", "balance": "loss"}
MLA = {"kv_rank": 16, "nope_head_dim": 8, "rope_head_dim": 4, "value_head_dim": 8}
LLAMA3 = {
    "kind": "llama3",
    "factor": 8.0,
    "original_length": 16,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", {"kv_heads": 2}),
    "llama free": ("LlamaForCausalLM", {"tie_embeddings": False, "bias": True, "head_dim": 12}),
    "llama linear": ("LlamaForCausalLM", {"rope_scaling": {"kind": "linear", "factor": 3.0}}),
    "llama ntk": ("LlamaForCausalLM", {"rope_scaling": {"kind": "ntk", "factor": 4.0}}),
    "llama yarn": ("LlamaForCausalLM", {"rope_scaling": {"kind": "yarn", "factor": 4.0, "original_length": 16}}),
    "llama llama3": ("LlamaForCausalLM", {"rope_scaling": LLAMA3, "rope_theta": 500.0}),
    "qwen3": ("Qwen3ForCausalLM", {"qk_norm": True, "kv_heads": 2, "head_dim": 16}),
    "llama mup": ("LlamaForCausalLM", {"mup_base_width": 8, "mup_base_head_dim": 2, "bias": True}),
    "qwen3 mup": ("Qwen3ForCausalLM", {"mup_base_width": 16, "mup_base_head_dim": 2, "qk_norm": True}),
    "qwen3 local": ("Qwen3ForCausalLM", {"qk_norm": True, "kv_heads": 2, "window": 6, "global_every": 2}),
    "smollm3": ("SmolLM3ForCausalLM", {"kv_heads": 2, "window": 5, "global_every": 3, "nope_every": 3}),
    "smollm3 nope": ("SmolLM3ForCausalLM", {"nope_every": 2, "bias": True, "tie_embeddings": False}),
    "smollm3 local": ("SmolLM3ForCausalLM", {"window": 1}),
    "mixtral": ("MixtralForCausalLM", {"moe": SOFTMAX, "kv_heads": 2, "tie_embeddings": False}),
    "qwen3 moe": ("Qwen3MoeForCausalLM", {"moe": {**SOFTMAX, "first": 1}, "qk_norm": True}),
    "glm4": ("Glm4MoeForCausalLM", {"moe": {**MOE, "first": 1, "shared_experts": 2}, "kv_heads": 2}),
    "glm4 plain": ("Glm4MoeForCausalLM", {"moe": {**MOE, "balance": "loss"}, "qk_norm": True, "tie_embeddings": False}),
    "deepseek": ("DeepseekV3ForCausalLM", {"mla": {**MLA, "q_rank": 20}}),
    "deepseek free": ("DeepseekV3ForCausalLM", {"mla": {**MLA, "value_head_dim": 12, "rope_head_dim": 6}, "tie_embeddings": False}),
    "deepseek yarn": ("DeepseekV3ForCausalLM", {"mla": MLA, "rope_scaling": {"kind": "yarn", "factor": 4.0, "original_length": 16}}),
    "deepseek ntk": ("DeepseekV3ForCausalLM", {"mla": MLA, "rope_scaling": {"kind": "ntk", "factor": 4.0}}),
    "deepseek experts": ("DeepseekV3ForCausalLM", {"mla": MLA, "moe": {**MOE, "first": 1, "shared_experts": 2}}),
    "eurobert": ("EuroBertForMaskedLM", {"causal": False, "kv_heads": 2}),
    "eurobert mup": ("EuroBertForMaskedLM", {"causal": False, "mup_base_width": 16, "mup_base_head_dim": 2}),
    "eurobert free": ("EuroBertForMaskedLM", {"causal": False, "tie_embeddings": False, "rope_theta": 5e5, "head_dim": 12}),
    "gpt2": ("GPT2LMHeadModel", {"preset": "gpt2", "max_positions": 24}),
    "gpt2 mup": ("GPT2LMHeadModel", {"preset": "gpt2", "mup_base_width": 64}),
    "gpt2 relu2": ("GPT2LMHeadModel", {"preset": "gpt2", "activation": "relu2", "tie_embeddings": False}),
}  # fmt: skip


def model_of(settings: dict[str, Any], vocab_size: int = 90, spread: float = 0.05) -> Decoder:
    """A decoder whose norms, biases and padding rows are as far from their first values as its matrices."""
    model = Decoder(ModelConfig.model_validate({**SMALL, **settings}), vocab_size, seed=1).eval()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if name.endswith("ffn.bias") and model.config.moe and model.config.moe.balance != "bias":
                continue  # nothing ever moves it
            value.add_(torch.randn(value.shape, generator=generator), alpha=spread)
    return model


def saved_bytes(compute: Callable[[], Any], parameters: Iterable[torch.Tensor]) -> int:
    """Bytes of the storages that a computation keeps for its backward pass, the parameters' own left out."""
    own = {p.untyped_storage().data_ptr() for p in parameters}
    storages: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            storages[storage.data_ptr()] = storage  # kept, so that no other one takes its place
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        compute()
    return sum(storage.nbytes() for storage in storages.values())
