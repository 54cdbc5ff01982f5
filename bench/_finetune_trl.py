"""TRL's side of bench/finetune.py: its trainers on the ids that ours made, in a process with its packages on the path."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

THREADS = 2
ANSWER, REJECTED, UNRELATED = 1, 2, 3  # `corpusmill.schemas.shards.Target`


def read(file: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(Path(file).read_text(encoding="utf-8"))
    return found


def rows_of(documents: list[dict[str, Any]], loss: str) -> list[dict[str, Any]]:
    """Rows with the columns that TRL's collators read."""
    if loss == "sft":
        return [
            {
                "input_ids": one["prompt"] + one["answer"],
                "completion_mask": [0] * len(one["prompt"]) + [1] * len(one["answer"]),
            }
            for one in documents
        ]
    if loss == "kto":
        own = [one for one in documents if one["kind"] != UNRELATED]
        others = {tuple(one["prompt"]): one["answer"] for one in documents if one["kind"] == UNRELATED}
        return [
            {
                "prompt_ids": one["prompt"], "completion_ids": one["answer"], "KL_completion_ids": others[tuple(one["prompt"])],
                "label": one["kind"] == ANSWER,
            }
            for one in own
        ]  # fmt: skip
    chosen = [one for one in documents if one["kind"] == ANSWER]
    rejected = {tuple(one["prompt"]): one["answer"] for one in documents if one["kind"] == REJECTED}
    return [
        {
            "prompt_ids": one["prompt"],
            "chosen_ids": one["answer"],
            "rejected_ids": rejected[tuple(one["prompt"])],
        }
        for one in chosen
    ]


def model_of(folder: str) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(THREADS)
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def trainer_of(loss: str, exported: str, rows: list[dict[str, Any]], output: str, **settings: Any) -> Any:
    """A trainer of TRL that keeps each step's loss, and when each step ended, in `steps`."""
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer, SFTConfig, SFTTrainer

    kinds = {"sft": (SFTConfig, SFTTrainer), "kto": (KTOConfig, KTOTrainer)}
    made, base = kinds.get(loss, (DPOConfig, DPOTrainer))
    given: dict[str, Any] = {
        "output_dir": output, "use_cpu": True, "report_to": [], "save_strategy": "no", "logging_strategy": "no", "bf16": False,
        "lr_scheduler_type": "constant", "warmup_steps": 0, "weight_decay": 0.0, "adam_beta2": 0.999, "max_grad_norm": 1.0,
        "gradient_checkpointing": False, "disable_tqdm": True, "max_length": None, "seed": 1, **settings,
    }  # fmt: skip
    if loss in ("dpo", "ipo", "hinge"):
        given |= {"loss_type": {"dpo": ["sigmoid"], "ipo": ["ipo"], "hinge": ["hinge"]}[loss], "beta": 0.1}
    if loss == "kto":
        given |= {"beta": 0.1}
    if loss == "sft":
        given |= {"completion_only_loss": True}

    class Kept(base):  # type: ignore[misc, valid-type]
        def _prepare_dataset(self, dataset: Any, *rest: Any, **more: Any) -> Any:
            if loss == "sft":
                return super()._prepare_dataset(dataset, *rest, **more)
            return dataset  # the ids are those that ours has made

        def training_step(self, *rest: Any, **more: Any) -> Any:
            found = super().training_step(*rest, **more)
            self.steps.append(float(found))
            self.times.append(time.monotonic())
            return found

    tokenizer = AutoTokenizer.from_pretrained(exported)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    found = Kept(
        model=model_of(exported), args=made(**given), train_dataset=Dataset.from_list(rows), processing_class=tokenizer,
        **({} if loss == "sft" else {"ref_model": model_of(exported)}),
    )  # fmt: skip
    found.steps, found.times = [], []
    return found


def losses(exported: str, file: str, loss: str, steps: str, rate: str) -> list[float]:
    """Of steps on one batch of all documents."""
    rows = rows_of(read(file), loss)
    if loss in ("simpo", "orpo"):
        return by_formula(exported, rows, loss, int(steps), float(rate))
    with tempfile.TemporaryDirectory() as output:
        trainer = trainer_of(
            loss, exported, rows, output, per_device_train_batch_size=len(rows), max_steps=int(steps), learning_rate=float(rate)
        )  # fmt: skip
        trainer.train()
        return list(trainer.steps)


def by_formula(exported: str, rows: list[dict[str, Any]], loss: str, steps: int, rate: float) -> list[float]:
    """TRL's formula on log-probabilities of transformers, and AdamW."""
    import torch
    from trl.experimental.cpo.cpo_trainer import CPOTrainer
    from trl.experimental.orpo.orpo_trainer import ORPOTrainer

    model = model_of(exported)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.999), weight_decay=0.0)
    device = SimpleNamespace(device=torch.device("cpu"))

    def log_probabilities(prompt: list[int], answer: list[int]) -> Any:
        ids = torch.tensor([prompt + answer])
        found = model(ids).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        return found.gather(1, torch.tensor(answer)[:, None])[:, 0]

    kept = []
    for _ in range(steps):
        chosen = [log_probabilities(row["prompt_ids"], row["chosen_ids"]) for row in rows]
        rejected = [log_probabilities(row["prompt_ids"], row["rejected_ids"]) for row in rows]
        means = [torch.stack([one.mean() for one in each]) for each in (chosen, rejected)]
        if loss == "simpo":
            given = SimpleNamespace(
                alpha=0.0,
                loss_type="simpo",
                simpo_gamma=0.5,
                beta=2.0,
                label_smoothing=0.0,
                accelerator=device,
            )
            value = CPOTrainer.cpo_loss(given, *means)[0].mean()
        else:
            given = SimpleNamespace(beta=0.1, accelerator=device)
            value = -torch.cat(chosen).mean() - ORPOTrainer.odds_ratio_loss(given, *means)[0].mean()
        optimizer.zero_grad()
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        kept.append(float(value.detach()))
    return kept


def speed(exported: str, file: str, loss: str, batch: str, packing: str, length: str) -> dict[str, float]:
    """Tokens and seconds of an epoch without its first two steps."""
    documents = read(file)
    rows = rows_of(documents, loss)
    tokens = sum(len(one["prompt"]) + len(one["answer"]) for one in documents)
    with tempfile.TemporaryDirectory() as output:
        given: dict[str, Any] = {
            "per_device_train_batch_size": int(batch),
            "num_train_epochs": 1,
            "learning_rate": 1e-3,
        }
        if int(packing):
            count = max(round(tokens / int(length) / (len(rows) / int(batch))), 1)
            given |= {"packing": True, "max_length": int(length), "per_device_train_batch_size": count}
        trainer = trainer_of(loss, exported, rows, output, **given)
        trainer.train()
        times = trainer.times
    share = (len(times) - 2) / len(times)
    return {"tokens": tokens * share, "seconds": times[-1] - times[1], "steps": len(times)}


def logits(exported: str, adapter: str) -> dict[str, list[float]]:
    """Of some positions of PEFT's model, with the adapter beside the weights and merged into them."""
    import torch
    from peft import PeftModel

    model = PeftModel.from_pretrained(model_of(exported), adapter)
    ids = torch.arange(1, 65)[None]
    with torch.no_grad():
        found = {"separate": model(ids).logits[0, -1].tolist()}
        found["merged"] = model.merge_and_unload()(ids).logits[0, -1].tolist()
    return found
