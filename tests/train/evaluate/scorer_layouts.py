"""Run in two processes: the scorer in each layout against one process. The first process prints a line for each: that it agrees, or
what differs in which process."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from corpusmill.schemas.training import TrainConfig
from corpusmill.train.batch import Batch
from corpusmill.train.evaluate.divergence import divergences, mean_divergence
from corpusmill.train.evaluate.rows import Query
from corpusmill.train.evaluate.scorer import Scorer
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.parallel.mesh import World, join
from corpusmill.train.parallel.model import ParallelModel, build
from corpusmill.train.parallel.sharded_parameter import local

VOCAB, LENGTH = 90, 48
Found = dict[str, np.ndarray[Any, Any]]


def config_of(parallel: dict[str, Any], seed: int, settings: dict[str, Any]) -> TrainConfig:
    return TrainConfig.model_validate(
        {
            "name": "scorer", "precision": "fp32", "device": "cpu", "seed": seed, "parallel": parallel,
            "data": {"shards": "-", "sequence_length": LENGTH, "global_batch": 8, "micro_batch": 2},
            "model": {"dim": 32, "layers": 4, "heads": 4, "kv_heads": 4, "ffn_dim": 48, "vocab_multiple": 8, **settings},
            "schedule": {"steps": 2, "warmup_steps": 1},
        }
    )  # fmt: skip


def queries() -> list[Query]:
    """Contexts with several continuations, some too long for the model, in rows of odd length."""
    rng = np.random.default_rng(5)
    found = []
    for _ in range(9):
        context = rng.integers(1, VOCAB, rng.integers(1, 46)).tolist()
        found += [Query(context, rng.integers(1, VOCAB, rng.integers(1, 12)).tolist()) for _ in range(3)]
    return found


def batches(count: int) -> list[Batch]:
    """Rows of two documents, in part not scored."""
    generator = torch.Generator().manual_seed(6)
    found = []
    for _ in range(count):
        ids = torch.randint(VOCAB, (3, LENGTH + 1), generator=generator)
        labels = ids[:, 1:].clone()
        labels[0, :7] = -100
        documents = (torch.arange(LENGTH) >= 20).long().expand(3, LENGTH)
        positions = torch.cat([torch.arange(20), torch.arange(LENGTH - 20)]).expand(3, LENGTH)
        found.append(
            {"tokens": ids[:, :-1], "labels": labels, "documents": documents, "positions": positions}
        )
    return found


def measured(scorers: list[Scorer], ours: list[Batch]) -> Found:
    """Everything that a scorer computes, and the divergence of two. Of this data rank's batches."""
    one, other = scorers
    answers = one.answers(queries(), rows=2)
    return {
        "answers": np.concatenate([answer.tokens for answer in answers]),
        "greedy": np.array([answer.greedy for answer in answers]),
        "losses": stacked(one.losses(ours)),
        "likeliest": stacked(one.surprises_of_likeliest(ours)),
        "divergence": stacked(divergences(one, other, ours)),
    }


def stacked(parts: Any) -> np.ndarray[Any, Any]:
    return np.concatenate([part.numpy() for part in parts])


def compare(parallel: dict[str, Any], settings: dict[str, Any]) -> list[str]:
    """What differs from one process, as this one sees it."""
    configs = [config_of(parallel, seed, settings) for seed in (1, 2)]
    world = join(configs[0])
    scorers, whole = [], []
    for config in configs:
        split = build(config, VOCAB, world)
        alone = ParallelModel([Decoder(config.model, VOCAB, config.seed)])
        with torch.no_grad():  # as sharp as a trained model
            for model in (split, alone):
                for parameter in model.parameters():
                    local(parameter).mul_(3.0)
        scorers.append(Scorer(split, config, world))
        whole.append(Scorer(alone, config_of({}, config.seed, settings), World()))
    every = batches(3)  # of two data ranks, one has a batch more
    ours = every[world.data_rank :: world.data_size]
    differences = []
    wanted = measured(whole, ours)
    for name, value in measured(scorers, ours).items():
        worst = float(np.abs(value.astype(np.float64) - wanted[name]).max())
        if worst > 1e-5:
            differences.append(f"{name} by {worst:g}")
    signs = np.signbit(wanted["likeliest"])
    assert signs.any() and not signs[wanted["likeliest"] != 0].all() and wanted["divergence"].max() > 0.1
    mean = mean_divergence(*scorers, ours), mean_divergence(*whole, every)
    if abs(mean[0].value - mean[1].value) > 1e-5 or mean[0].n != mean[1].n:
        differences.append(f"mean divergence: {mean}")
    return differences


def main() -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    for name, parallel, settings in json.loads(sys.argv[1]):
        differences: list[list[str]] = [[] for _ in range(dist.get_world_size())]
        dist.all_gather_object(differences, compare(parallel, settings))
        if dist.get_rank() == 0:
            for rank, different in enumerate(differences):
                for line in different:
                    print(f"{name} differs in process {rank}: {line}")
            if not any(differences):
                print(f"{name} agrees")
            sys.stdout.flush()
    dist.barrier()
    os._exit(0)  # gloo's threads may outlive the interpreter's end and abort the process; all is written


if __name__ == "__main__":
    main()
