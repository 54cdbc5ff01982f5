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


class Rate(NamedTuple):
    """Tokens/s by median, how many times as fast ours was (median over rounds), and with how many workers."""

    tokens_per_second: float
    ratio: float
    workers: int


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


def measure(root: str, data: dict[Peer, Path]) -> tuple[list[float], float, list[Row]]:
    """(tokens/s of ours in each round, its peak MB, a row for each peer). Ours is measured again before every peer."""
    mine: list[float] = []
    peak, rows, chosen = 0.0, [], {}
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
    for _ in range(ROUNDS):
        for peer, names in chosen.items():
            if peer in why:
                continue
            ours = alone("speed", root, SECONDS)
            mine.append(ours["tokens_per_second"])
            peak = max(peak, ours["peak_mb"])
            try:
                answer = ask(peer, "speed", data[peer], str(SECONDS), *names)
                asked.setdefault(peer, []).append({**answer, "ours": mine[-1]})
            except NotMeasured as reason:
                why[peer] = str(reason)
    for peer in data:
        if peer in why:
            rows.append(Row(peer, {}, 0.0, why[peer]))
        else:
            rates = {name.partition(":")[0]: rate(name, asked[peer]) for name in chosen[peer]}
            rows.append(Row(peer, rates, max(answer["peak_mb"] for answer in asked[peer])))
    if not mine:
        ours = alone("speed", root, SECONDS)
        mine, peak = [ours["tokens_per_second"]], ours["peak_mb"]
    return mine, peak, rows


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


def table(mine: list[float], peak_mb: float, rows: list[Row]) -> list[str]:
    """Lines of Markdown."""
    heads = " | ".join(f"{what}: M tokens/s | workers | ours is faster" for what in FORMS.values())
    lines = [f"| loader | {heads} | peak RSS, MB |", f"|---|{'---:|' * (3 * len(FORMS) + 1)}"]
    best = f"{median(mine) / 1e6:.1f} | | 1"
    lines.append(f"| StreamingTokens | {best} | {best} | {peak_mb:.0f} |")
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
