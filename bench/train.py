"""The loop: tokens/s of `train` beside a bare PyTorch loop of the same model, in turn, in the same process."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

SEQUENCE, BATCH, MICRO, VOCABULARY, STEPS, ROUNDS = 256, 16, 8, 8192, 2, 4


def measure() -> dict[str, Any]:
    """Best tokens/s of each over rounds taken in turn; the share of ours that the loop waited for the loader."""
    import torch

    from bench.loader import write_set
    from schemas.model import ModelConfig
    from schemas.training import TrainConfig
    from train.data import StreamingTokens
    from train.model.decoder import Decoder
    from train.optim import make_optimizer
    from train.parallel import ParallelModel
    from train.step import TrainState, train_step

    with tempfile.TemporaryDirectory() as folder:
        root = write_set(Path(folder), vocabulary=VOCABULARY, blocks=2)
        config = TrainConfig.model_validate(
            {
                "name": "bench", "precision": "fp32", "schedule": {"steps": 10_000},
                "data": {"shards": root, "sequence_length": SEQUENCE, "global_batch": BATCH, "micro_batch": MICRO},
            }
        )  # fmt: skip
        shape = ModelConfig(dim=256, layers=4, heads=4, kv_heads=2, ffn_dim=704)
        model, bare = Decoder(shape, VOCABULARY), Decoder(shape, VOCABULARY)
        state = TrainState(
            config,
            ParallelModel([model]),
            make_optimizer(model, config.optimizer),
            torch.zeros(2, 2, dtype=torch.float64),
        )
        stream = StreamingTokens(root, sequence_length=SEQUENCE, global_batch=BATCH)
        optimizer = torch.optim.AdamW(
            bare.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True
        )
        data = np.random.default_rng(0).integers(1, VOCABULARY, 2**20).astype(np.uint16)
        pick = np.random.default_rng(1)
        stalled = 0.0

        def our_steps() -> None:
            nonlocal stalled
            for _ in range(STEPS):
                began = time.perf_counter()
                batch = next(stream)
                stalled += time.perf_counter() - began
                train_step(state, batch, float((batch["labels"] >= 0).sum()))

        def bare_steps() -> None:
            for _ in range(STEPS):
                for _ in range(BATCH // MICRO):
                    starts = pick.integers(0, len(data) - SEQUENCE - 1, MICRO)
                    rows = torch.from_numpy(
                        np.stack([data[s : s + SEQUENCE + 1] for s in starts]).astype(np.int64)
                    )
                    loss = bare(rows[:, :-1], rows[:, 1:]).mean() / (BATCH // MICRO)
                    loss.backward()
                torch.nn.utils.clip_grad_norm_(bare.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)

        our_steps(), bare_steps()
        stalled, seconds = 0.0, ([], [])
        for _ in range(ROUNDS):
            for times, steps in zip(seconds, (our_steps, bare_steps), strict=True):
                began = time.perf_counter()
                steps()
                times.append(time.perf_counter() - began)
        stream.close()
    tokens = STEPS * BATCH * SEQUENCE
    return {
        "parameters": model.parameter_count,
        "threads": torch.get_num_threads(),
        "tokens_per_second": tokens / min(seconds[0]),
        "bare_tokens_per_second": tokens / min(seconds[1]),
        "ratio": min(seconds[1]) / min(seconds[0]),
        "loader_stall": stalled / sum(seconds[0]),
    }


def main() -> None:
    found = measure()
    print(
        f"{found['parameters'] / 1e6:.1f} M parameters, fp32, {found['threads']} threads, {BATCH} sequences of {SEQUENCE}"
        f" a step in micro-batches of {MICRO}; ours streams shards and keeps documents apart, the bare loop reads an"
        f" array in memory and masks nothing.\n"
    )
    print("| loop | tokens/s | times |\n|---|---:|---:|")
    print(f"| train | {found['tokens_per_second']:,.0f} | {found['ratio']:.3f} |")
    print(f"| bare PyTorch | {found['bare_tokens_per_second']:,.0f} | 1.000 |")
    print(f"\nShare of the time that the loop waited for the loader: {found['loader_stall']:.2%}.")


if __name__ == "__main__":
    main()
