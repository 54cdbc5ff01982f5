"""The loaders that ours is measured beside: each in its pinned environment, on the same tokens in its own format."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench._loader_ours import alone
from bench.peers import NotMeasured, Peer, ask

TORCH = "torch==2.13.0"  # of a package index with CPU builds, 200 MB; of others, with CUDA, gigabytes
WEBDATASET = Peer("webdataset", ("webdataset==1.0.2", TORCH, "numpy==2.4.6"), "loader_webdataset.py")
MOSAIC = Peer(
    "mosaicml-streaming",
    ("mosaicml-streaming==0.13.0", TORCH, "torchvision==0.28.0", "numpy==2.1.3"),
    "loader_mosaic.py",
)
LITDATA = Peer(
    "litdata", ("litdata==0.2.76", TORCH, "torchvision==0.28.0", "numpy==2.4.6"), "loader_litdata.py"
)
HF = Peer("datasets", ("datasets==5.2.0", TORCH, "pyarrow==26.0.1", "numpy==2.4.6"), "loader_hf.py")
PEERS = (WEBDATASET, MOSAIC, LITDATA, HF)
FORMS = {"mixed": "two sources mixed", "alone": "one of them"}
ROUNDS, SECONDS, TRIAL, WORKERS = 3, 1.5, 1.0, (0, 2)
# Of a batch, what a trainer reads beside tokens and labels.
COLUMNS = ("documents", "positions", "source_id", "n")


class Rate(NamedTuple):
    """Tokens/s by median, how many times as fast ours was (median over rounds), and with how many workers."""

    tokens_per_second: float
    ratio: float
    workers: int


class Ours(NamedTuple):
    """Tokens/s of ours, asked for tokens and labels, each time; and by median asked for all that the trainer reads (how many
    times as fast the first one was in the same round, by median); peak MB of both."""

    best: list[float]
    trainer: float
    ratio: float
    best_mb: float
    trainer_mb: float


class Row(NamedTuple):
    """What was measured of a peer; `why` is the reason if nothing was."""

    peer: Peer
    rates: dict[str, Rate]
    peak_mb: float
    why: str = ""


def prepare(peer: Peer, root: str, rows: Path, folder: Path) -> Path:
    """Where the peer finds the tokens in its own format. Raises `NotMeasured`."""
    if peer is WEBDATASET:
        return Path(root)
    made = folder / peer.name
    made.mkdir()
    ask(peer, "write", rows, made)
    return made


def measure(root: str, data: dict[Peer, Path]) -> tuple[Ours, list[Row]]:
    """Ours, and a row for each peer. Ours is measured again before every peer, and in each round as the trainer reads it."""
    mine, read, rows, chosen = Rounds(root), Rounds(root, *COLUMNS), [], {}
    asked: dict[Peer, list[dict[str, Any]]] = {}
    why: dict[Peer, str] = {}
    for peer, folder in data.items():
        try:
            speeds = ask(peer, "speed", folder, str(TRIAL), *(f"{f}:{w}" for f in FORMS for w in WORKERS))[
                "speeds"
            ]
            chosen[peer] = fastest(speeds)
        except NotMeasured as reason:
            why[peer] = str(reason)
    ratios = []
    for _ in range(ROUNDS):
        ratios.append(mine.again() / read.again())
        for peer, names in chosen.items():
            if peer in why:
                continue
            ours = mine.again()
            try:
                answer = ask(peer, "speed", data[peer], str(SECONDS), *names)
                asked.setdefault(peer, []).append({**answer, "ours": ours})
            except NotMeasured as reason:
                why[peer] = str(reason)
    for peer in data:
        if peer in why:
            rows.append(Row(peer, {}, 0.0, why[peer]))
        else:
            rates = {name.partition(":")[0]: rate(name, asked[peer]) for name in chosen[peer]}
            rows.append(Row(peer, rates, max(answer["peak_mb"] for answer in asked[peer])))
    return Ours(mine.speeds, median(read.speeds), median(ratios), mine.peak_mb, read.peak_mb), rows


class Rounds:
    """Measurements of ours, each in a process of its own: tokens/s of each, and the highest peak, MB."""

    def __init__(self, root: str, *names: str) -> None:
        self.root, self.names = root, names
        self.speeds: list[float] = []
        self.peak_mb = 0.0

    def again(self) -> float:
        found = alone("speed", self.root, SECONDS, *self.names)
        self.speeds.append(found["tokens_per_second"])
        self.peak_mb = max(self.peak_mb, found["peak_mb"])
        return self.speeds[-1]


def fastest(speeds: dict[str, float]) -> list[str]:
    """The FORM:WORKERS of each form that gave most."""
    by_form: dict[str, str] = {}
    for name, speed in speeds.items():
        form = name.partition(":")[0]
        if form not in by_form or speed > speeds[by_form[form]]:
            by_form[form] = name
    return list(by_form.values())


def rate(name: str, answers: Iterable[dict[str, Any]]) -> Rate:
    """The figures of one form over all rounds; an answer holds `speeds`, and the rate of ours just before."""
    answers = list(answers)
    speeds = [answer["speeds"][name] for answer in answers]
    ratios = [answer["ours"] / speed for answer, speed in zip(answers, speeds, strict=True)]
    return Rate(median(speeds), median(ratios), int(name.partition(":")[2]))


def table(ours: Ours, rows: list[Row]) -> list[str]:
    """Lines of Markdown."""
    heads = " | ".join(f"{what}: M tokens/s | workers | ours is faster" for what in FORMS.values())
    lines = [f"| loader | {heads} | peak RSS, MB |", f"|---|{'---:|' * (3 * len(FORMS) + 1)}"]
    best = f"{median(ours.best) / 1e6:.1f} | | 1"
    lines.append(f"| StreamingTokens | {best} | {best} | {ours.best_mb:.0f} |")
    read = f"{ours.trainer / 1e6:.1f} | | {ours.ratio:.2f} times"
    lines.append(f"| StreamingTokens, as the trainer reads it | {read} | {read} | {ours.trainer_mb:.0f} |")
    for row in rows:
        if row.why:
            lines.append(f"| {row.peer.label} | not measured: {row.why} |{' |' * (3 * len(FORMS))}")
            continue
        cells = " | ".join(
            f"{found.tokens_per_second / 1e6:.1f} | {found.workers} | {found.ratio:.2f} times"
            for found in (row.rates[form] for form in FORMS)
        )
        lines.append(f"| {row.peer.label} | {cells} | {row.peak_mb:.0f} |")
    return lines
