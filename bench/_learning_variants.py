"""What each choice of the quick start's recipe is worth: the same training with one of them changed."""

from __future__ import annotations

from collections.abc import Sequence

VARIANTS: dict[str, list[str]] = {
    "the config": [],
    "AdamW for all matrices, at 3e-3": [
        "optimizer.kind=adamw",
        "optimizer.lr=3e-3",
        "optimizer.muon_lr=null",
    ],
    "betas 0.9 and 0.95": ["optimizer.betas=[0.9,0.95]"],
    "Muon's rate 4 times as high": ["optimizer.muon_lr=0.016"],
    "one table for embeddings and head": ["model.tie_embeddings=true"],
    "value embeddings": ["model.value_embeddings=all"],
    "cosine to 0": ["schedule.kind=cosine", "schedule.floor=0"],
    "sequences of 256": ["data.sequence_length=256", "data.global_batch=8", "data.micro_batch=8"],
    "batches twice as large": ["data.global_batch=32", "data.micro_batch=32"],
    "squared ReLU": ["model.activation=relu2", "model.ffn_dim=512"],
    "3 layers": ["model.layers=3"],
    "width 192": ["model.dim=192", "model.heads=3"],
    "fp32": ["precision=fp32"],
}


def lines(config: str, shards: str, seconds: float, threads: int, seeds: Sequence[int]) -> list[str]:
    """A table in Markdown, best first; every row had the same wall time, in the order of `VARIANTS`, seed after seed."""
    from bench.learning import alone, interval, ours

    found: dict[str, list[tuple[float, float, int]]] = {name: [] for name in VARIANTS}
    for seed in seeds:
        for name, settings in VARIANTS.items():
            run = alone(ours, config, shards, seconds, threads, seed, 1, settings)
            found[name].append((run.curve[-1][1], run.tokens_per_second, run.tokens))
    base = interval([bits for bits, *_ in found["the config"]])[0]
    table = [
        f"`{config}` with one choice changed, {seconds:.0f} s of training on {threads} threads, seeds"
        f" {', '.join(map(str, seeds))}, best first:\n",
        "| | bits per byte | difference | tokens/s | tokens |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, runs in sorted(found.items(), key=lambda item: interval([bits for bits, *_ in item[1]])[0]):
        bits, speed, tokens = (interval([run[n] for run in runs])[0] for n in range(3))
        apart = f"{bits - base:+.3f}" if VARIANTS[name] else ""
        table.append(f"| {name} | {bits:.3f} | {apart} | {speed:,.0f} | {tokens / 1e6:.2f} M |")
    return table
