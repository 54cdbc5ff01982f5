"""What is learned in a given wall time on the quick start's data: bits per byte over all validation tokens of training configs,
beside a plain loop in the style of nanoGPT at its defaults, and n-gram models of the same tokens."""

from __future__ import annotations

import argparse
import math
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from bench import plain_loop

ROOT = Path(__file__).resolve().parent.parent
RECIPE = "configs/recipes/quickstart.yaml"
CONFIGS = (
    "configs/train/quickstart.yaml",
    "bench/configs/quickstart-adamw.yaml",
)  # of the table, in this order
SECONDS, SEEDS, POINTS = 150.0, (1, 2, 3), 6
PICTURE = ROOT / "docs/images/learning.svg"
PLAIN = "plain loop, nanoGPT's defaults for a CPU"
CALIBRATION = 20  # steps of a run that finds out how many fit into the wall time
# 0.975 quantiles of Student's t by degrees of freedom (no dependency for six numbers).
STUDENT = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}


class Run(NamedTuple):
    """One seed of one row. `ngrams`: bits per byte of each n-gram model, by its name in the table."""

    curve: list[tuple[float, float]]  # (seconds of training, bits per byte)
    tokens_per_second: float
    parameters: int
    tokens: int
    ngrams: dict[str, float]


def plain(shards: str, seconds: float, threads: int, seed: int, points: int, sources: Sequence[str]) -> Run:
    """The plain loop."""
    return Run(*plain_loop.run(shards, seconds, threads, seed, points=points, sources=sources), ngrams={})


def ours(
    file: str, shards: str, seconds: float, threads: int, seed: int, points: int, settings: Sequence[str] = ()
) -> Run:
    """`corpusmill train` on a config with `settings`, whose steps are as many as fit into the wall time, scored at its
    checkpoints."""
    from corpusmill.train import checkpoint
    from corpusmill.train.data.shards import open_shards
    from corpusmill.train.evaluate.batches import whole
    from corpusmill.train.evaluate.scorer import Scorer
    from corpusmill.train.evaluate.splits import evaluate, load_model
    from corpusmill.train.parallel.mesh import join
    from corpusmill.train.parallel.model import ParallelModel
    from corpusmill.train.run_folder import open_run
    from corpusmill.train.trainer import train

    with tempfile.TemporaryDirectory() as folder:
        config = fitted(file, shards, seconds, threads, seed, points, folder, settings)
        result = train(config)
        config, run = open_run(config.output_url)  # with the precision that it was trained in
        opened, world = open_shards(shards), join(config)
        evaluation = evaluate(config, run)
        together = evaluation["all_sources"]
        curve = []
        for step in sorted(checkpoint.steps(run)):
            found = checkpoint.load_step(run, step)
            seconds_of = float(found.state["seconds"])
            if step == evaluation["step"]:
                curve.append((seconds_of, together["bits_per_byte"]))
                continue
            model = ParallelModel([load_model(config, found, opened.set.vocab_size, world.device)], world)
            scorer, loss, size = Scorer(model, config, world), 0.0, 0
            for source in opened.validation.values():
                if source.index.ntokens:
                    rows = whole(source, config.data.sequence_length, config.data.micro_batch)
                    loss += scorer.total(rows)[0]
                    size += source.index.text_bytes
            curve.append((seconds_of, loss / math.log(2) / size))
    beside = together["ngrams"]
    ngrams = {
        f"{kind} of {words}": beside[which][kind]["bits_per_byte"]
        for which, words in (("trained_on", "the tokens seen"), ("all", "all train tokens"))
        for kind in ("bigram", "trigram")
    }
    return Run(curve, result["tokens_per_second"], result["parameters"], result["tokens"], ngrams)


def fitted(
    file: str,
    shards: str,
    seconds: float,
    threads: int,
    seed: int,
    points: int,
    folder: str,
    given: Sequence[str] = (),
) -> Any:
    """The config of a run that takes about so many seconds: its schedule is stretched or cut to the steps that fit, by the
    speed of a few steps; with `points` checkpoints at equal distances, all of which stay."""
    from corpusmill.common.config import load
    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.trainer import train

    def with_steps(steps: int, output: str, more: Sequence[str] = ()) -> Any:
        every = -(-steps // points)
        warmup = max(round(steps * written.schedule.warmup_steps / written.schedule.steps), 1)
        settings = [
            f"data.shards={shards}", f"output={folder}/{output}", f"seed={seed}", f"threads={threads}",
            f"schedule.steps={steps}", f"schedule.warmup_steps={min(warmup, steps - 1)}", f"checkpoint.every={every}",
            "checkpoint.keep_last=1000000", "validation.every=null", f"log.every={every}", "log.tensorboard=false",
            *given, *more,
        ]  # fmt: skip
        return load(TrainConfig, ROOT / file, settings)

    written = load(TrainConfig, ROOT / file)
    times: list[tuple[int, float]] = []
    calibration = with_steps(CALIBRATION, "calibration", ["log.every=1"])
    train(calibration, on_row=lambda row: times.append((row["step"], row["tokens_per_second"])))
    # The first steps allocate.
    speed = statistics.median(rate for step, rate in times if step > CALIBRATION // 4)
    tokens = calibration.data.tokens(CALIBRATION) / CALIBRATION
    return with_steps(max(round(seconds * speed / tokens), 2), "run")


def measure(
    configs: Sequence[str], shards: str, seconds: float, seeds: Sequence[int], threads: int, points: int
) -> dict[str, list[Run]]:
    """All runs by row, seed after seed, each in a process of its own, so that a slower hour slows all rows."""
    from corpusmill.common.config import load
    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.data.shards import open_shards

    read = load(TrainConfig, ROOT / configs[0]).data
    sources = [name for name in open_shards(shards).train if read.reads(name)]
    found: dict[str, list[Run]] = {}
    for seed in seeds:
        for file in configs:
            name = f"`{file}`"
            found.setdefault(name, []).append(alone(ours, file, shards, seconds, threads, seed, points))
        found.setdefault(PLAIN, []).append(alone(plain, shards, seconds, threads, seed, points, sources))
    return found


def alone(function: Callable[..., Run], *arguments: Any) -> Run:
    """The result of a call in a new process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean, and half the width of its 95 % interval by Student's t; 0 for a single value."""
    if len(values) < 2:
        return statistics.fmean(values), 0.0
    quantile = STUDENT.get(len(values) - 1, 1.96)
    return statistics.fmean(values), quantile * statistics.stdev(values) / len(values) ** 0.5


def table(found: dict[str, list[Run]]) -> list[str]:
    """The figures as Markdown: the trained models, then the n-gram models."""
    lines = [
        "| model | parameters | tokens/s | tokens | seconds | bits per byte: mean ± 95 % interval | each seed |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for name, runs in found.items():
        ends = [run.curve[-1] for run in runs]
        mean, half = interval([value for _, value in ends])
        speed = statistics.fmean(run.tokens_per_second for run in runs)
        tokens = statistics.fmean(run.tokens for run in runs)
        seconds = statistics.fmean(second for second, _ in ends)
        each = ", ".join(f"{value:.3f}" for _, value in ends)
        lines.append(
            f"| {name} | {runs[0].parameters / 1e6:.1f} M | {speed:,.0f} | {tokens / 1e6:.2f} M | {seconds:.0f} |"
            f" {mean:.3f} ± {half:.3f} | {each} |"
        )
    for name, runs in found.items():
        for model in runs[0].ngrams:
            values = [run.ngrams[model] for run in runs]
            mean, half = interval(values)
            whose = "" if "all train" in model else f" by {name}"
            row = f"| {model}{whose} | | | | | {mean:.3f} ± {half:.3f} | {', '.join(f'{v:.3f}' for v in values)} |"
            if row not in lines:
                lines.append(row)
    return lines


def curves(found: dict[str, list[Run]]) -> list[str]:
    """Bits per byte against the seconds of training, means of the seeds, as Markdown."""
    points = min(len(run.curve) for runs in found.values() for run in runs)
    lines = ["| model | " + " | ".join(f"point {n}" for n in range(1, points + 1)) + " |"]
    lines.append("|---|" + "---:|" * points)
    for name, runs in found.items():
        cells = []
        for second, value in mean_curve(runs)[-points:]:
            cells.append(f"{value:.3f} at {second:.0f} s")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def mean_curve(runs: Sequence[Run]) -> list[tuple[float, float]]:
    """The points of a curve, each the mean of the seeds' points."""
    columns = zip(*(run.curve for run in runs), strict=False)
    return [
        (statistics.fmean(x for x, _ in column), statistics.fmean(y for _, y in column)) for column in columns
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables as Markdown, and draw the picture."""
    parser = argparse.ArgumentParser(prog="python -m bench learning", description=__doc__)
    parser.add_argument(
        "--config", action="append", help=f"a training config (repeatable) [{', '.join(CONFIGS)}]"
    )
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of training, of each run [150]")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS), help="[1 2 3]")
    parser.add_argument("--points", type=int, default=POINTS, help="of a curve [6]")
    parser.add_argument("--threads", type=int, default=2, help="of each run [2]")
    parser.add_argument("--shards", help="the quick start's shards [made by its recipe]")
    parser.add_argument(
        "--variants", action="store_true", help="instead: what each choice of the first config is worth"
    )
    parser.add_argument("--picture", type=Path, default=PICTURE, help=f"[{PICTURE.relative_to(ROOT)}]")
    given = parser.parse_args(arguments)
    from bench import _learning_variants
    from bench._learning_picture import picture

    with tempfile.TemporaryDirectory() as folder:
        shards = given.shards or made(folder)
        configs = given.config or CONFIGS
        if given.variants:
            print(
                "\n".join(
                    _learning_variants.lines(configs[0], shards, given.seconds, given.threads, given.seeds)
                )
            )
            return
        found = measure(configs, shards, given.seconds, given.seeds, given.threads, given.points)
    drawn = picture({name: [run.curve for run in runs] for name, runs in found.items()}, ngrams_of(found))
    given.picture.write_text(drawn, encoding="utf-8")
    print(
        f"{given.seconds:.0f} s of training on {given.threads} threads (validation not counted), seeds"
        f" {', '.join(map(str, given.seeds))}; the schedule of a config is fitted to as many steps as that takes. Bits per byte are"
        f" of every validation token of all sources, in rows of the training's length. The plain loop is"
        f" `bench/plain_loop.py`: {plain_loop.Options()._asdict()}.\n"
    )
    print("\n".join([*table(found), "", *curves(found)]))


def ngrams_of(found: dict[str, list[Run]]) -> dict[str, float]:
    """The n-gram models of the first row that has them, for the picture."""
    runs = next(runs for runs in found.values() if runs[0].ngrams)
    return {name: statistics.fmean(run.ngrams[name] for run in runs) for name in runs[0].ngrams}


def made(folder: str, *settings: str) -> str:
    """The quick start's shards, made in a folder by its recipe, with `settings`."""
    given = [part for one in (f"output={folder}/run", *settings) for part in ("--set", one)]
    command = [sys.executable, "-m", "corpusmill", "run", RECIPE, "--quiet", *given]
    subprocess.run(command, check=True, cwd=ROOT, stdout=sys.stderr)
    return f"{folder}/run/shards"


if __name__ == "__main__":
    main()
