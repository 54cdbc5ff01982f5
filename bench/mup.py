"""muP: what a few steps change at each width (its coordinate check), and the loss at each of several learning rates and widths on the books
of the example corpus, with it and without."""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import statistics
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch
from markupsafe import Markup
from torch import Tensor

from bench import _bare, _coordinates
from bench._books import tokens
from bench._learning_picture import COLOURS, STYLE
from corpusmill.common.charts import Frame, element, path, text

ROOT = Path(__file__).resolve().parent.parent
PICTURE, COORDINATES = ROOT / "docs/images/mup.svg", ROOT / "docs/images/mup-coordinates.svg"
WIDTHS, RATES = (64, 128, 256), tuple(2.0**-power for power in (12, 11, 10, 9, 8))
STEPS, WARMUP, ROWS, LENGTH, VOCABULARY, LAST, SEEDS = 100, 10, 8, 64, 512, 20, 3
Losses = dict[int, list[float]]  # of each width, by rate


def loss_of(ids: Tensor, width: int, rate: float, base: int | None) -> float:
    """The mean loss in nats of the last steps of a run, each on rows that no step has seen; infinite if it diverges."""
    from corpusmill.schemas.model import ModelConfig
    from corpusmill.schemas.optim import OptimizerConfig
    from corpusmill.train.model.decoder import Decoder
    from corpusmill.train.optim import make_optimizer
    from corpusmill.train.optim.make import set_rate

    config = ModelConfig(
        dim=width, layers=2, heads=width // 32, ffn_dim=4 * width, activation="gelu", mup_base_width=base
    )
    model = Decoder(config, VOCABULARY, seed=1)
    optimizer = make_optimizer(model, OptimizerConfig(lr=rate))
    order = torch.randperm(len(ids) // (LENGTH + 1), generator=torch.Generator().manual_seed(0))
    rows = ids[: len(order) * (LENGTH + 1)].view(-1, LENGTH + 1)[order]
    losses = []
    for step in range(STEPS):
        batch = rows[step * ROWS : (step + 1) * ROWS]
        loss = model(batch[:, :-1], batch[:, 1:]).sum() / (ROWS * LENGTH)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        set_rate(optimizer, rate * min(1.0, (step + 1) / WARMUP))
        optimizer.step()
        losses.append(loss.item())
    found = statistics.fmean(losses[-LAST:])
    return found if math.isfinite(found) else math.inf


def measure() -> dict[str, Losses]:
    """Of the standard parametrisation and of muP, whose base is the smallest width, where both are one model. Two runs at a time."""
    ids = tokens(VOCABULARY)
    runs = [(width, rate, None) for width in WIDTHS for rate in RATES]
    runs += [(width, rate, WIDTHS[0]) for width in WIDTHS[1:] for rate in RATES]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=spawn, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        # The widest first, so that none of them is left for the end.
        order = sorted(runs, key=lambda run: -run[0])
        found = dict(
            zip(order, pool.map(loss_of, *zip(*((ids, *run) for run in order), strict=True)), strict=True)
        )
    standard = {width: [found[width, rate, None] for rate in RATES] for width in WIDTHS}
    mup = {width: [found[width, rate, WIDTHS[0]] for rate in RATES] for width in WIDTHS[1:]}
    return {"standard": standard, "muP": {WIDTHS[0]: standard[WIDTHS[0]], **mup}}


def picture(found: dict[str, Losses]) -> str:
    """Loss over learning rate, a line for each width, its lowest point marked. SVG."""
    named = {
        f"{name}: loss in nats a token": {f"width {width}": losses for width, losses in of.items()}
        for name, of in found.items()
    }
    ticks = [(rate, f"{rate:.4f}".rstrip("0")) for rate in RATES]
    return panels(
        "Loss over learning rate at three widths, with and without muP",
        named,
        RATES,
        ticks,
        "learning rate",
        0.05,
        True,
    )


def coordinates(found: dict[str, dict[str, list[float]]]) -> str:
    """Changes over width, the logarithm of each by that at the base, a line for each output. SVG."""
    named = {
        f"{name}: log10 of change / that at width {_coordinates.BASE}": {
            output.replace("attention", "attn"): [math.log10(value / values[0]) for value in values]
            for output, values in of.items()
        }
        for name, of in found.items()
    }
    widths = tuple(map(float, _coordinates.WIDTHS))
    ticks = [(width, f"{width:.0f}") for width in widths]
    return panels(
        "What a few steps change, over the width, with and without muP", named, widths, ticks, "width", 0.2
    )


def panels(
    title: str,
    found: dict[str, dict[str, list[float]]],
    places: tuple[float, ...],
    ticks: list[tuple[float, str]],
    below: str,
    space: float,
    lowest: bool = False,
) -> str:
    """A panel for each name, side by side on one scale: named lines over `places`, a logarithmic axis. `lowest`: points are marked. SVG."""
    width, height = 780, 330
    finite = [y for of in found.values() for line in of.values() for y in line if y < math.inf]
    low, high = min(finite) - space, min(max(finite), min(finite) + 8) + space
    parts = [element("rect", width=width, height=height, class_="paper")]
    for number, (name, of) in enumerate(found.items()):
        left = 52 + number * width / 2
        frame = Frame(
            places[0], places[-1], high, height - 24, log=True, width=(number + 1) * width / 2, left=left, top=34, y_low=low,
        )  # fmt: skip
        parts += frame.axes(ticks, "{:.2f}".format, below, 4)
        parts.append(text(left, 18, name))
        for place, (key, values) in enumerate(of.items()):
            colour = COLOURS[place % len(COLOURS)]
            points = [(frame.x(x), frame.y(min(y, high))) for x, y in zip(places, values, strict=True)]
            parts.append(element("path", d=path(points), class_="mean", stroke=colour))
            if lowest:
                x, y = points[values.index(min(values))]
                parts.append(element("circle", cx=x, cy=y, r=4.5, fill=colour))
            at = left + place * (width / 2 - 60) / len(of)
            parts.append(element("path", d=f"M{at},{height - 12}h12", class_="mean", stroke=colour))
            parts.append(text(at + 15, height - 8, key, "tick"))
    frame_of = {"xmlns": "http://www.w3.org/2000/svg", "viewBox": f"0 0 {width} {height}", "role": "img"}
    return f"{element('svg', element('title', title), element('style', Markup(STYLE)), *parts, **frame_of)}\n"


def main() -> None:
    """Print Markdown, and draw the pictures."""
    argparse.ArgumentParser(
        prog="python -m bench.mup", description=f"{__doc__} About five minutes."
    ).parse_args()
    _bare.stand_in()
    torch.set_num_threads(os.cpu_count() or 1)
    moved = {name: _coordinates.over_widths(name == "muP", {}, SEEDS) for name in ("standard", "muP")}
    COORDINATES.write_text(coordinates(moved), encoding="utf-8")
    widths = _coordinates.WIDTHS
    sys.stdout.write(
        f"Coordinate check: the mean absolute change of outputs after {_coordinates.STEPS} steps of AdamW, two layers, {SEEDS} seeds; slope: of"
        " its logarithm over that of the width. With muP it does not depend on the width.\n\n"
        "![What a few steps change, over the width](../docs/images/mup-coordinates.svg)\n\n"
        f"| | output | {' | '.join(f'width {width}' for width in widths)} | slope |\n|---|---|{'---:|' * len(widths)}---:|\n"
    )
    for name, of in moved.items():
        for output, values in of.items():
            cells = " | ".join(f"{value:.4f}" for value in values)
            sys.stdout.write(f"| {name} | {output} | {cells} | {_coordinates.slope(values):+.2f} |\n")
    found = measure()
    PICTURE.write_text(picture(found), encoding="utf-8")
    sys.stdout.write(
        f"\nThe rate transferred: two layers, heads of 32, AdamW, {STEPS} steps of {ROWS} x {LENGTH} tokens of the example corpus's books (BPE of"
        f" {VOCABULARY}), one seed; mean loss in nats a token of the last {LAST} steps, on rows not seen before. The base of muP is width {WIDTHS[0]},"
        " where both are one model. The lowest of a row in bold.\n\n"
        "![Loss over learning rate at three widths, with and without muP](../docs/images/mup.svg)\n\n"
        f"| | width | {' | '.join(f'lr {rate:.4g}' for rate in RATES)} |\n|---|---:|{'---:|' * len(RATES)}\n"
    )
    for name, of in found.items():
        for width, losses in of.items():
            cells = " | ".join(f"**{loss:.3f}**" if loss == min(losses) else f"{loss:.3f}" for loss in losses)
            sys.stdout.write(f"| {name} | {width} | {cells} |\n")


if __name__ == "__main__":
    main()
