"""The rows of metrics.jsonl as columns of numbers; the plots of the dashboard, and the numbers of each, few enough for one
file."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from corpusmill.common.charts import thin
from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.log.metrics import flatten

Floats = npt.NDArray[np.float64]
Steps = npt.NDArray[np.int64]


class History:
    """Columns by flattened name (`loss`, `loss_per_source/wiki`): 16 bytes a number, 0.8 GB for a million rows of 50."""

    def __init__(self) -> None:
        self.last: dict[str, Any] = {}  # the last row
        self._columns: dict[str, tuple[array[int], array[float]]] = {}
        self._read, self._lines, self._tail = 0, 0, b""  # bytes and lines read so far, and the last line

    def add(self, row: dict[str, Any]) -> None:
        """Add a row's finite numbers; a row of an earlier step removes those from that step on."""
        step = int(row["step"])
        if self.last and step <= self.last["step"]:
            for steps, values in self._columns.values():
                kept = int(np.searchsorted(np.asarray(steps), step))
                del steps[kept:], values[kept:]
        for name, value in flatten(row):
            if isfinite(value):
                steps, values = self._columns.setdefault(name, (array("q"), array("d")))
                steps.append(step)
                values.append(value)
        self.last = row

    def read(self, run: Folder) -> History:
        """Add the new rows of metrics.jsonl, line by line: all of them may not fit into memory. A file that was replaced when
        the run was resumed is read from the start. An incomplete last line is left for the next call."""
        file = run / "metrics.jsonl"
        try:
            stream = file.open()
        except FileNotFoundError:
            return self
        with stream:
            stream.seek(self._read - len(self._tail))
            if stream.read(len(self._tail)) != self._tail:
                self.__init__()  # type: ignore[misc]
                stream.seek(0)
            for line in stream:
                if not line.endswith(b"\n"):
                    break
                self._read, self._lines, self._tail = self._read + len(line), self._lines + 1, line
                try:
                    self.add(json.loads(line))
                except (ValueError, TypeError, KeyError):
                    raise WorkError(f"{file}:{self._lines}: not a row of metrics") from None
        return self

    @property
    def names(self) -> list[str]:
        return [name for name, (steps, _) in self._columns.items() if steps]

    def column(self, name: str) -> tuple[Steps, Floats]:
        """Steps in ascending order, and values; both empty for an unknown name."""
        steps, values = self._columns.get(name, ((), ()))
        return np.array(steps, np.int64), np.array(values, np.float64)


def read_journal(run: Folder) -> list[dict[str, Any]]:
    """The guard's entries in journal.jsonl, each {entry, step, kind, why, ...}; none if there is no such file."""
    try:
        lines = (run / "journal.jsonl").read().splitlines()
    except FileNotFoundError:
        return []
    entries = []
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
            entries.append({**entry, "step": int(entry["step"]), "kind": str(entry["kind"])})
        except (ValueError, TypeError, KeyError):
            if number < len(lines):
                raise WorkError(f"{run / 'journal.jsonl'}:{number}: not an entry of the guard") from None
    return entries


POINTS = 2000  # of a line at most
ALL_POINTS = 120_000  # of all lines of a page together: about 1.5 MB
LINES = 8  # of a plot with a line per layer: more cannot be distinguished


class Spec(NamedTuple):
    """A plot of the columns `names`; one that ends in `/` stands for all columns with this prefix. `form`: how values are
    written: number, share (of 1, as %), count (2.1 M) or whole."""

    title: str
    names: tuple[str, ...]
    unit: str = ""
    note: str = ""
    log: bool = False
    form: str = "number"


class Line(NamedTuple):
    """One of a plot; `kind` is line, dots, dashes, or layer (coloured by depth)."""

    name: str
    kind: str
    steps: Steps
    values: Floats


SPECS = {
    "Loss": (
        Spec("Loss", ("loss", "validation/"), "nats a token", "validation: mean of the sources", True),
        Spec("Loss by source", ("loss_per_source/",), "nats a token", "training", True),
        Spec("Validation by source", ("validation/",), "nats a token", "", True),
        Spec("Validation of averages", ("validation_ema/",), "nats a token", "optimizer.ema", True),
        Spec("Validation of gaps", ("validation_infill/",), "nats a token", "data.infill", True),
        Spec("Other losses", ("z_loss", "balance_loss", "router_z_loss"), "nats a token", "weighted", True),
        Spec("Tokens after the next", ("loss_mtp",), "nats a token", "model.mtp", True),
    ),
    "Tasks": (
        Spec("Above chance", ("core",), "0 is a guess, 1 is perfect", "mean of the tasks that have a chance level"),
        Spec("Tasks", ("tasks/",), "", "evaluation.tasks"),
    ),
    "Schedule": (
        Spec("Learning rate", ("lr",), "", "dashed: the schedule"),
        Spec("Loss scale", ("loss_scale",), "", "of fp16 gradients", True, "whole"),
    ),
    "Stability": (
        Spec("Gradient norm", ("grad_norm",), "", "of all parameters, before clipping", True),
        Spec("Parameter norm", ("param_norm",), "", "of all parameters"),
        Spec("Update norm", ("update_norm",), "", "of the step's change of all parameters", True),
        Spec("Skipped steps", ("skipped",), "", "by the guard, since the row before", form="whole"),
        Spec("Last activations", ("activation_rms",), "RMS", "after the last layer, before the final norm"),
        Spec("Attention entropy", ("attention_entropy/",), "nats", "mean of heads and positions, on a few tokens"),
        Spec("Attention entropy, share", ("attention_entropy_share/",), "of its maximum", "on a few tokens", form="share"),
        Spec("Highest attention logit", ("attention_logit_max/",), "", "of all heads, on a few tokens", True),
        Spec("Largest activation", ("activation_peak/",), "", "after a layer, mean of a few tokens", True),
        Spec("Highest logit", ("logit_max",), "", "on a few tokens"),
        Spec("Expert load", ("expert_load/",), "× an even share", "fullest and emptiest of a layer"),
    ),
    "Speed": (
        Spec("Throughput", ("tokens_per_second",), "tokens/s", "all processes", form="count"),
        Spec("MFU", ("mfu",), "of the peak in dense bf16", form="share"),
        Spec("Loader stall", ("loader_stall",), "of the time", "waiting for data", form="share"),
        Spec("Slowest process", ("slowest_ratio", "stragglers/"), "× the median's time", "computing; stragglers are named"),
        Spec("Memory", ("memory_mib",), "GiB", "peak of one process"),
        Spec("Energy", ("energy_kwh",), "kWh", "since the start, all machines"),
        Spec("Blocks replaced", ("blocks_replaced",), "", "damaged, in one process", form="whole"),
    ),
}  # fmt: skip
BY_LAYER = ("Attention entropy", "Attention entropy, share", "Highest attention logit", "Largest activation")
UNPLOTTED = ("tokens", "slowest_process", "carbon_kg")
QUIET = ("blocks_replaced", "skipped")  # no plot while they are 0


def groups(history: History, config: TrainConfig) -> list[dict[str, Any]]:
    """[{title, plots}] of the run's columns; those without a plot in `SPECS` get one of their own at the end."""
    chosen: list[tuple[str, Spec, list[Line]]] = []
    left = [n for n in history.names if n not in UNPLOTTED and (n not in QUIET or history.column(n)[1].any())]
    others = {name.split("/")[0]: Spec(_words(name.split("/")[0]), (name.split("/")[0],)) for name in left}
    for group, specs in [*SPECS.items(), ("More", tuple(others.values()))]:
        for spec in specs:
            heads = tuple(name.rstrip("/") for name in spec.names)
            names = [name for name in left if name.split("/")[0] in heads]
            if names and (group != "More" or heads[0] not in _KNOWN):
                chosen.append((group, spec, _lines(spec, names, history, config)))
    limit = max(8, min(POINTS, ALL_POINTS // max(sum(len(lines) for _, _, lines in chosen), 1)))
    titles = dict.fromkeys(group for group, _, _ in chosen)
    plots = {
        title: [_plot(spec, lines, limit) for of, spec, lines in chosen if of == title] for title in titles
    }
    return [{"title": title, "plots": found} for title, found in plots.items()]


_KNOWN = {name.rstrip("/") for specs in SPECS.values() for spec in specs for name in spec.names}


def _words(name: str) -> str:
    return name.replace("_", " ")


def _lines(spec: Spec, names: list[str], history: History, config: TrainConfig) -> list[Line]:
    if spec.title == "Loss":
        valid = [name for name in names if name != "loss"]
        mean = [Line("validation", "dots", *_combined(valid, history, np.mean))] if valid else []
        return [Line("training", "line", *history.column("loss")), *mean]
    if spec.title == "Learning rate":
        return [Line("used", "line", *history.column("lr")), Line("schedule", "dashes", *schedule(config))]
    if spec.title in BY_LAYER:
        return _layers(names, history)
    if spec.title == "Expert load":
        return _experts(names, history)
    if spec.title == "Memory":
        steps, mib = history.column("memory_mib")
        return [Line("memory", "line", steps, mib / 1024)]
    kind = "dots" if spec.title.startswith("Validation") else "line"
    return [Line(n.split("/", 1)[1] if "/" in n else _words(n), kind, *history.column(n)) for n in names]


def _layers(names: list[str], history: History) -> list[Line]:
    """A line for each layer; of many layers an even selection, and the lowest and highest of all."""
    shown = names
    if len(names) > LINES:
        shown = [names[i] for i in np.linspace(0, len(names) - 1, LINES - 2).round().astype(int)]
    found = [Line(_words(name.split("/")[1]), "layer", *history.column(name)) for name in shown]
    if shown is not names:
        found += [Line("lowest of all", "dashes", *_combined(names, history, np.min))]
        found += [Line("highest of all", "dashes", *_combined(names, history, np.max))]
    return found


def _experts(names: list[str], history: History) -> list[Line]:
    """Means and extremes over the layers of the columns `layer_1/max` and `layer_1/min`."""
    full, empty = ([name for name in names if name.endswith(end)] for end in ("/max", "/min"))
    return [
        Line("fullest of all", "dashes", *_combined(full, history, np.max)),
        Line("fullest, mean of layers", "line", *_combined(full, history, np.mean)),
        Line("emptiest, mean of layers", "line", *_combined(empty, history, np.mean)),
        Line("emptiest of all", "dashes", *_combined(empty, history, np.min)),
    ]


def _combined(names: Sequence[str], history: History, of: Callable[..., Any]) -> tuple[Steps, Floats]:
    """`of` (numpy's mean, min or max) the columns, at the steps that all of them have."""
    columns = [history.column(name) for name in names]
    steps = columns[0][0]
    for other, _ in columns[1:]:
        steps = steps[np.isin(steps, other, assume_unique=True)]
    values = [value[np.isin(at, steps, assume_unique=True)] for at, value in columns]
    return steps, np.asarray(of(np.stack(values), axis=0), np.float64)


def schedule(config: TrainConfig) -> tuple[Steps, Floats]:
    """The learning rate of the whole run by the config: at 400 steps and at the corners."""
    from corpusmill.train.optim.make import rate_at

    last = config.schedule.steps
    corners = {1, config.schedule.warmup_steps or 1, last}
    if config.schedule.kind == "wsd":
        corners.add(max(1, last - config.schedule.decaying))
    steps = sorted(corners | set(np.linspace(1, last, min(last, 400)).round().astype(int).tolist()))
    return np.array(steps, np.int64), np.array([rate_at(config, step) for step in steps])


def _plot(spec: Spec, lines: list[Line], limit: int) -> dict[str, Any]:
    """A plot for the page's script. Steps are differences, values have 5 digits: a third of the bytes."""
    series = []
    for line in lines:
        steps, values = thin(line.steps, line.values, limit)
        x, y = np.diff(steps, prepend=0).tolist(), [_rounded(value) for value in values.tolist()]
        series.append({"name": line.name, "kind": line.kind, "x": x, "y": y})
    fields = {key: value for key, value in spec._asdict().items() if key != "names"}
    return {**fields, "series": series}


def _rounded(value: float) -> float | int:
    short = float(f"{value:.5g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short
