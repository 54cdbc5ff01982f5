"""Our side of bench/finetune.py's rewards: steps of reinforcement with the answers that were sampled in them, and of a reward model
with the head that it begins with, for TRL's side to repeat."""

from __future__ import annotations

from typing import Any

import torch

GROUP, TOKENS = 4, 24
LOSSES = ("grpo", "dr_grpo", "dapo", "rloo")
BETA = 0.1


def reinforced(run: str, file: str, loss: str, output: str) -> list[dict[str, Any]]:
    """Of each step: the loss, the norm of the gradient, and prompts, answers and rewards [prompts x group]."""
    from bench.finetune import THREADS, config_of
    from corpusmill.train.finetune.reinforce import Reinforcement, Rewarded
    from corpusmill.train.finetune.rollout import Answered
    from corpusmill.train.trainer import train

    torch.set_num_threads(THREADS)
    # Half of what a random model writes has one of these letters.
    rules = {"rewards": [{"name": "letter", "matches": "(?s).*[jqxz].*"}]}
    more = {
        "reinforcement": {**rules, "loss": loss, "group": GROUP, "max_tokens": TOKENS, "beta": BETA},
        "guard": {"enabled": False},
    }
    config = config_of(run, file, "sft", output, more)
    steps, rewarded = list[dict[str, Any]](), Reinforcement.rewarded

    def kept(self: Reinforcement, answers: list[Answered]) -> Rewarded:
        found = rewarded(self, answers)
        each = [
            {"prompt": list(one.prompt.ids), "answer": list(one.tokens), "reward": reward}
            for one, reward in zip(answers, found.total.tolist(), strict=True)
        ]
        steps.append({"answers": each})
        return found

    def on_row(row: dict[str, Any]) -> None:
        steps[row["step"] - 1] |= {"loss": row["loss"], "norm": row["grad_norm"]}

    Reinforcement.rewarded = kept  # type: ignore[method-assign]
    train(config, on_row=on_row)
    return [step for step in steps if "loss" in step]


def rewarding(run: str, file: str, output: str) -> dict[str, Any]:
    """Losses of steps of a reward model, norms of its gradients, and the head before them."""
    from bench.finetune import THREADS, config_of
    from corpusmill.train.data.opening import open_run_data
    from corpusmill.train.finetune.start import starting_model
    from corpusmill.train.run_folder import open_run
    from corpusmill.train.trainer import train

    torch.set_num_threads(THREADS)
    model = {**open_run(run)[0].model.model_dump(mode="json"), "reward_head": True}
    config = config_of(run, file, "reward", output, {"model": model})
    shards = open_run_data(config)
    head = starting_model(config, shards.set.vocab_size, shards.tokenizer()).state_dict()["head.weight"]
    steps = list[dict[str, Any]]()
    train(config, on_row=lambda row: steps.append({"loss": row["loss"], "norm": row["grad_norm"]}))
    return {"steps": steps, "head": head.flatten().tolist()}
