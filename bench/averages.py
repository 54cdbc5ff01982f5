"""What averaging weights and decay branches make of a run at a constant rate: bits per byte of the validation text, beside the run itself and
a cosine run of the same tokens.

The model and the texts are the quick start's, with a smaller vocabulary. EMA, LAWA and the branches are of the same trunk; a branch begins at nine (or eight)
tenths of its steps and decays to 0 at its end, so that all rows but the trunk's own averages have seen the same tokens. Differences are paired by seed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from bench import learning
from bench.learning import ROOT

if TYPE_CHECKING:
    from corpusmill.schemas.evaluation import Estimate

CONFIG = "configs/train/quickstart.yaml"
SMALL = ("data.global_batch=8", "data.micro_batch=8")  # half of its tokens a step
VOCABULARY = 2048  # a quarter of its tokenizer's, so that the head is a quarter of the work
SEEDS, STEPS, POINTS, LAST, EMA = (1, 2, 3), 320, 20, 5, 0.98
TRUNK, AVERAGE, LAWA = "trunk at its end", f"EMA {EMA:g} of it", f"LAWA of its last {LAST}"
LINEAR, SQRT, LONG, COSINE = (
    "branch, linear over 10 %",
    "branch, 1 - sqrt over 10 %",
    "branch, linear over 20 %",
    "cosine to 0, a run of its own",
)
# What a row costs beside the trunk, in shares of its steps.
COSTS = {
    TRUNK: "",
    AVERAGE: "none",
    LAWA: "none",
    LINEAR: "10 %",
    SQRT: "10 %",
    LONG: "20 %",
    COSINE: "100 %",
}
EXPECTED = (LINEAR, LAWA, TRUNK)  # from the lowest up


def of_seed(
    file: str, shards: str, folder: str, seed: int, steps: int = STEPS, settings: Sequence[str] = ()
) -> dict[str, float]:
    """Bits per byte of each row over all validation documents. `steps`: a multiple of `POINTS`; checkpoints are a `POINTS`-th of them apart."""
    from corpusmill.common.config import load
    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train import checkpoint
    from corpusmill.train.data.opening import open_run_data
    from corpusmill.train.evaluate.splits import load_model
    from corpusmill.train.parallel.mesh import join
    from corpusmill.train.run_folder import open_run
    from corpusmill.train.tools.continual.average import Judge, mean_weights, moving_average
    from corpusmill.train.tools.continual.branch import Shape, prepare
    from corpusmill.train.trainer import train

    every = steps // POINTS

    def trained(name: str, *more: str) -> TrainConfig:
        given = [
            f"data.shards={shards}", f"output={folder}/{name}", f"name={name}", f"seed={seed}", f"schedule.steps={steps}",
            f"schedule.warmup_steps={every}", f"checkpoint.every={every}", f"checkpoint.keep_last={LAST}", "validation.every=null",
            "log.every=100", "log.tensorboard=false", *settings, *more,
        ]  # fmt: skip
        config = load(TrainConfig, ROOT / file, given)
        train(config)
        return config

    ema = f"optimizer.ema={EMA}"
    trained("trunk", "schedule.kind=constant", ema)
    config, trunk = open_run(f"{folder}/trunk")
    opened, world = open_run_data(config), join(config)
    judge, size = Judge(config, opened, world), opened.set.vocab_size

    def bits(model: Any) -> float:
        found = judge.bits(judge.scorer(model))
        return sum(float(each.sum()) for each in found.values()) / sum(
            float(s.sum()) for s in judge.sizes.values()
        )

    def at(run: Any, step: int) -> Any:
        return load_model(config, checkpoint.load_step(run, step), size, world.device)

    there = list(checkpoint.steps(trunk))[-LAST:]
    members = [at(trunk, step) for step in there]
    mean = mean_weights(members)
    found = {TRUNK: bits(members[-1])}
    whole = members[0]
    whole.load_state_dict(moving_average(config, checkpoint.load_step(trunk, steps), size))
    found[AVERAGE] = bits(whole)
    whole.load_state_dict(mean)
    found[LAWA] = bits(whole)
    branches: tuple[tuple[str, Shape, int], ...] = (
        (LINEAR, "linear", 2),
        (SQRT, "sqrt", 2),
        (LONG, "linear", 4),
    )
    for row, shape, points in branches:
        branch = prepare((config, trunk), steps - points * every, str(points * every), shape)
        train(branch)
        found[row] = bits(at(open_run(branch.output_url)[1], steps))
    trained("cosine", "schedule.kind=cosine", "schedule.floor=0", ema)
    found[COSINE] = bits(at(open_run(f"{folder}/cosine")[1], steps))
    return found


def over_seeds(values: Sequence[float]) -> Estimate:
    """Mean and Student's t interval over seeds."""
    from corpusmill.train.evaluate.statistics import estimate

    return estimate(list(values), proportion=False)


def lines(found: Sequence[dict[str, float]]) -> list[str]:
    """The table as Markdown, and whether the expected order held."""
    rows = [
        "| row | steps beside the trunk's | bits a byte | each seed | less the trunk | 95 % |", "|---|---:|---:|---|---:|---:|",
    ]  # fmt: skip
    for row in found[0]:
        values = [one[row] for one in found]
        each, less = (
            ", ".join(f"{value:.4f}" for value in values),
            over_seeds([one[row] - one[TRUNK] for one in found]),
        )
        apart = "" if row == TRUNK else f"{less.value:+.4f}"
        ends = "" if row == TRUNK or less.low is None else f"{less.low:+.4f} to {less.high:+.4f}"
        rows.append(f"| {row} | {COSTS[row]} | {sum(values) / len(values):.4f} | {each} | {apart} | {ends} |")
    return [*rows, "", *orders(found)]


def orders(found: Sequence[dict[str, float]]) -> list[str]:
    """Of each neighbours in the expected order, in how many seeds it held, and whether the interval of the difference leaves out 0."""
    text = [f"Expected from the lowest up: {' < '.join(EXPECTED)}."]
    for low, high in pairwise(EXPECTED):
        apart = [one[low] - one[high] for one in found]
        less = over_seeds(apart)
        held = sum(value < 0 for value in apart)
        verdict = "not shown"
        if less.high is not None and less.high < 0:
            verdict = "held"
        elif less.low is not None and less.low > 0:
            verdict = "did not hold, the other way round"
        ends = "" if less.low is None else f", {less.low:+.4f} to {less.high:+.4f}"
        text.append(f"{low} < {high}: in {held} of {len(apart)} seeds, {less.value:+.4f}{ends}: {verdict}.")
    return text


def main() -> None:
    """Print Markdown."""
    argparse.ArgumentParser(
        prog="python -m bench.averages", description=f"{__doc__} About five minutes."
    ).parse_args()
    with tempfile.TemporaryDirectory() as place:
        shards = learning.made(place, f"tokenizer.vocab_size={VOCABULARY}", f"report.card={place}/card.md")
        found = [of_seed(CONFIG, shards, f"{place}/{seed}", seed, settings=SMALL) for seed in SEEDS]
    every = STEPS // POINTS
    sys.stdout.write(
        f"{CONFIG} with {VOCABULARY:,} tokens, {', '.join(SMALL)}; {STEPS} steps, the trunk's at the full rate after {every} of warm-up; {len(SEEDS)} seeds. Checkpoints every {every} steps, so that LAWA spans"
        f" {(LAST - 1) * every} of them; the EMA's mean age is {1 / (1 - EMA):.0f}. Branches of 10 % begin at step {STEPS - 2 * every}, that of 20 %, over which LAWA averages, at step {STEPS - 4 * every}. Bits per byte of all"
        " validation documents; intervals are Student's t over seeds.\n\n"
    )
    sys.stdout.write("\n".join(lines(found)) + "\n")


if __name__ == "__main__":
    main()
