"""TRL's side of bench/finetune.py's rewards: its losses of the same answers, in a process with its packages on the path.

Log-probabilities are of transformers, whose gradients AdamW follows; answers are those that ours had sampled, so that sampling plays no
part."""

from __future__ import annotations

import copy
import json
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bench._finetune_trl import model_of, read, rows_of


def reinforced(
    exported: str, file: str, loss: str, rate: str, beta: str, group: str, max_tokens: str
) -> list[dict[str, float]]:
    """The loss and the norm of the gradient of each step."""
    import torch

    model = model_of(exported)
    reference = copy.deepcopy(model).eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=float(rate), betas=(0.9, 0.999), weight_decay=0.0)
    kept = []
    for step in json.loads(Path(file).read_text(encoding="utf-8")):
        inputs, rewards = _inputs(step["answers"])
        with torch.no_grad():
            old = _log_probabilities(model, inputs)[0]
            inputs["ref_per_token_logps"] = _log_probabilities(reference, inputs)[0]
        if loss == "rloo":
            # As RLOOTrainer._generate_and_score_completions: the divergence of an answer is taken from its reward.
            mask = inputs["completion_mask"]
            rewards = rewards - float(beta) * ((old - inputs["ref_per_token_logps"]) * mask).sum(-1)
            groups = rewards.view(-1, int(group))
            others = (groups.sum(1, keepdim=True) - groups) / (int(group) - 1)
            inputs |= {"advantages": (groups - others).flatten(), "old_logps": (old * mask).sum(-1)}
        else:
            groups = rewards.view(-1, int(group))
            above = groups - groups.mean(1, keepdim=True)
            inputs["advantages"] = (above / (groups.std(1, keepdim=True) + 1e-4)).flatten()
        value = _trainer(loss, model, float(beta), int(max_tokens))(inputs)
        optimizer.zero_grad()
        value.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        kept.append({"loss": float(value.detach()), "norm": float(norm)})
    return kept


def _inputs(answers: list[dict[str, Any]]) -> tuple[dict[str, Any], Any]:
    """The batch as TRL has it: prompts padded on the left, answers on the right; and the rewards."""
    import torch

    before, behind = max(len(one["prompt"]) for one in answers), max(len(one["answer"]) for one in answers)
    found: dict[str, Any] = {}
    for name, width in (("prompt", before), ("completion", behind)):
        ids, mask = torch.zeros(len(answers), width, dtype=torch.int64), torch.zeros(len(answers), width)
        for row, one in enumerate(answers):
            own = torch.tensor(one["prompt" if name == "prompt" else "answer"])
            place = slice(width - len(own), width) if name == "prompt" else slice(0, len(own))
            ids[row, place], mask[row, place] = own, 1.0
        found |= {f"{name}_ids": ids, f"{name}_mask": mask}
    found["num_items_in_batch"] = found["completion_mask"].sum()
    return found, torch.tensor([one["reward"] for one in answers])


def _log_probabilities(model: Any, inputs: dict[str, Any]) -> tuple[Any, Any, None]:
    """Of the answers' tokens, and the entropies there, as `_get_per_token_logps_and_entropies` gives them."""
    import torch

    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
    mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
    kept = inputs["completion_ids"].shape[1]
    places = (mask.cumsum(1) - 1).clamp(min=0).long()
    logits = model(input_ids=ids, attention_mask=mask, position_ids=places).logits
    found = logits[:, -kept - 1 : -1].log_softmax(-1)
    entropies = -(found.exp() * found).sum(-1)
    return found.gather(2, inputs["completion_ids"][..., None])[..., 0], entropies, None


def _trainer(loss: str, model: Any, beta: float, max_tokens: int) -> Any:
    """The `_compute_loss` of TRL's trainer, with what it reads of the trainer."""
    from trl import GRPOTrainer, RLOOTrainer

    def same(value: Any, *_: Any, **__: Any) -> Any:
        return value

    accelerator = SimpleNamespace(
        gather=same, gather_for_metrics=same, reduce=same, num_processes=1, sync_gradients=True
    )
    own = SimpleNamespace(
        model=model, accelerator=accelerator, beta=beta, loss_type=loss, epsilon_low=0.2, epsilon_high=0.2, top_entropy_quantile=1.0,
        off_policy_mask_threshold=None, importance_sampling_level="token", use_vllm=False, aux_loss_enabled=False,
        current_gradient_accumulation_steps=1, max_completion_length=max_tokens, _entropy_bonus_enabled=False,
        _metrics={"train": defaultdict(list), "eval": defaultdict(list)},
        args=SimpleNamespace(delta=None, use_bias_correction_kl=False, steps_per_generation=1),
    )  # fmt: skip

    def value(inputs: dict[str, Any]) -> Any:
        own._get_per_token_logps_and_entropies = lambda *_, **__: _log_probabilities(model, inputs)
        model.train()
        return (RLOOTrainer if loss == "rloo" else GRPOTrainer)._compute_loss(own, model, inputs)

    return value


def rewarding(exported: str, file: str, head: str, steps: str, rate: str) -> list[dict[str, float]]:
    """The loss and the norm of the gradient of each step of a reward model, by RewardTrainer's loss."""
    import torch
    from trl import RewardTrainer

    rows = rows_of(read(file), "reward")
    model = model_of(exported)
    weights = torch.tensor(json.loads(Path(head).read_text(encoding="utf-8")))
    score = torch.nn.Parameter(weights[None].clone())
    learnt = [*model.model.parameters(), score]
    optimizer = torch.optim.AdamW(learnt, lr=float(rate), betas=(0.9, 0.999), weight_decay=0.0)
    # Without the token that ends them: ours reads the reward behind the text, as TRL does where it pads with that token.
    pairs = [row["prompt_ids"] + row[which][:-1] for which in ("chosen_ids", "rejected_ids") for row in rows]

    def rewards(**_: Any) -> Any:
        """Chosen ones first, as its collator has them."""
        found = [model.model(torch.tensor([ids])).last_hidden_state[0, -1] @ score[0] for ids in pairs]
        return SimpleNamespace(logits=torch.stack(found)[:, None])

    own = SimpleNamespace(
        model=SimpleNamespace(training=True), args=SimpleNamespace(center_rewards_coefficient=None), _total_train_tokens=0, _tp_size=1,
        accelerator=SimpleNamespace(gather=lambda value: value, gather_for_metrics=lambda value: value),
        _metrics={"train": defaultdict(list)},
    )  # fmt: skip
    kept = []
    for _ in range(int(steps)):
        value = RewardTrainer.compute_loss(own, rewards, {"attention_mask": torch.ones(1)})
        optimizer.zero_grad()
        value.backward()
        norm = torch.nn.utils.clip_grad_norm_(learnt, 1.0)
        optimizer.step()
        kept.append({"loss": float(value.detach()), "norm": float(norm)})
    return kept
