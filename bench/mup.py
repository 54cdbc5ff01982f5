"""muP: the loss at each of several learning rates and widths, with it and without, on the books of the example corpus."""

from __future__ import annotations

import argparse
import math
import multiprocessing
import statistics
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch
from markupsafe import Markup
from torch import Tensor

from bench import _bare
from bench._learning_picture import COLOURS, STYLE
from corpusmill.common.charts import Frame, element, path, text

ROOT = Path(__file__).resolve().parent.parent
BOOKS = ROOT / "examples/corpus/sources/books"
PICTURE = ROOT / "docs/images/mup.svg"
WIDTHS, RATES = (64, 128, 256), tuple(2.0**-power for power in (12, 11, 10, 9, 8))
STEPS, WARMUP, ROWS, LENGTH, VOCABULARY, LAST = 100, 10, 8, 64, 512, 20
Losses = dict[int, list[float]]  # of each width, by rate


def tokens() -> Tensor:
    """The books as tokens of a small BPE that is trained on them, int64."""
    from tokenizers import ByteLevelBPETokenizer

    files = sorted(BOOKS.rglob("*.txt"))
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train([str(file) for file in files], vocab_size=VOCABULARY, show_progress=False)
    words = "\n\n".join(file.read_text(encoding="utf-8") for file in files)
    return torch.tensor(tokenizer.encode(words).ids)


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
    ids = tokens()
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
    """A panel for each parametrisation: loss over learning rate, a line for each width, its lowest point marked. SVG."""
    width, height = 780, 330
    finite = [loss for of in found.values() for line in of.values() for loss in line if loss < math.inf]
    low, high = min(finite) - 0.05, min(max(finite), min(finite) + 2) + 0.05
    ticks = [(rate, f"{rate:.4f}".rstrip("0")) for rate in RATES]
    parts = [element("rect", width=width, height=height, class_="paper")]
    for number, (name, of) in enumerate(found.items()):
        left = 52 + number * width / 2
        frame = Frame(
            RATES[0], RATES[-1], high, height - 24, log=True, width=(number + 1) * width / 2, left=left, top=34, y_low=low,
        )  # fmt: skip
        parts += frame.axes(ticks, "{:.2f}".format, "learning rate", 4)
        parts.append(text(left, 18, f"{name}: loss in nats a token"))
        for place, (size, losses) in enumerate(of.items()):
            colour = COLOURS[place]
            points = [
                (frame.x(rate), frame.y(min(loss, high))) for rate, loss in zip(RATES, losses, strict=True)
            ]
            parts.append(element("path", d=path(points), class_="mean", stroke=colour))
            x, y = points[losses.index(min(losses))]
            parts.append(element("circle", cx=x, cy=y, r=4.5, fill=colour))
            key = left + place * 90
            parts.append(element("path", d=f"M{key},{height - 12}h20", class_="mean", stroke=colour))
            parts.append(text(key + 26, height - 8, f"width {size}", "tick"))
    title = element("title", "Loss over learning rate at three widths, with and without muP")
    frame_of = {"xmlns": "http://www.w3.org/2000/svg", "viewBox": f"0 0 {width} {height}", "role": "img"}
    return f"{element('svg', title, element('style', Markup(STYLE)), *parts, **frame_of)}\n"


def main() -> None:
    """Print Markdown, and draw the picture."""
    argparse.ArgumentParser(
        prog="python -m bench.mup", description=f"{__doc__} About four minutes."
    ).parse_args()
    _bare.stand_in()
    found = measure()
    PICTURE.write_text(picture(found), encoding="utf-8")
    sys.stdout.write(
        f"Two layers, heads of 32, AdamW, {STEPS} steps of {ROWS} x {LENGTH} tokens of the example corpus's books (BPE of {VOCABULARY}), one"
        f" seed; mean loss in nats a token of the last {LAST} steps, on rows not seen before. The base of muP is width {WIDTHS[0]}, where both are"
        " one model. The lowest of a row in bold.\n\n"
        "![Loss over learning rate at three widths, with and without muP](../docs/images/mup.svg)\n\n"
        f"| | width | {' | '.join(f'lr {rate:.4g}' for rate in RATES)} |\n|---|---:|{'---:|' * len(RATES)}\n"
    )
    for name, of in found.items():
        for width, losses in of.items():
            cells = [f"**{loss:.3f}**" if loss == min(losses) else f"{loss:.3f}" for loss in losses]
            sys.stdout.write(f"| {name} | {width} | {' | '.join(cells)} |\n")


if __name__ == "__main__":
    main()
