"""Kills and faults at random points of the pipeline and the trainer: how many runs survive them, and give the same bytes.

A small pipeline (nine stages, 183 published files) and a small training (60 steps, a checkpoint every 6) run in several places. Each try
disturbs one run once, at a random share of the CPU time that an undisturbed one takes (of requests, for faults of a store; of writes, for kills
within a checkpoint); the shares of a row's tries are spread evenly over the run. Then the cause is removed (disk freed, credentials valid) and the
same command is given again, once, if the run has not finished by itself.

*Survived*: finished with exit code 0, no command ended in a traceback, and none left a process behind. *Identical*: published are the same
files as by an undisturbed run, each with the same bytes apart from the durations in manifests; of a training: all rows of metrics, and the tensors of the last checkpoint. *Where*: what
the newest file belonged to when the fault came.

`python -m bench chaos --seed N [--tries 100] [--kind NAME ...]`; a try that fails leaves its folder in `chaos-failures`.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import shutil
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench._chaos_cases import Setup
from bench._chaos_tries import Kind, NotPossible, Outcome, Try
from corpusmill.common.ids import checksum

DRAWS = 4  # of the moment of a fault, where the run ended before it

_EXPLAINED = (
    (__doc__ or "").split("\n\n", 1)[1].rpartition("\n\n")[0].replace("\n", " ").replace("  ", "\n\n")
)


# Faults of several cases.
KILLED, SIGTERM, CTRL_C = ("killed (SIGKILL)", "kill all"), ("SIGTERM", "terminate"), ("Ctrl-C", "interrupt")
WORKER, FULL = ("a worker killed", "kill worker"), ("disk full", "fill disk")
REFUSED, CUT, LATE = (
    ("requests refused (429, 500, 503)", "refused"), ("answers cut, connections reset", "cut"), ("answers late (1 s)", "late"),
)  # fmt: skip
# Case -> its faults, with the number of tries. A disk that becomes full or read-only is the case's own.
TRIED: dict[str, list[tuple[tuple[str, str], int]]] = {
    "pipeline": [(KILLED, 12), (SIGTERM, 4), (CTRL_C, 4), (FULL, 5), (("disk read-only", "read-only"), 4)],
    "pipeline with workers": [
        (("driver and workers killed", "kill all"), 2), (("driver alone killed", "kill one"), 2), (WORKER, 4),
        (("a worker paused 0.5 to 3 s", "pause worker"), 2), (SIGTERM, 1), (CTRL_C, 1), (FULL, 1),
    ],
    "pipeline by a scheduler": [(("a worker and its nanny killed", "kill node"), 3), (WORKER, 2)],
    "pipeline into a store": [
        (KILLED, 5), (REFUSED, 3), (CUT, 3), (LATE, 2), (("access denied until the end", "denied"), 3),
    ],
    "training": [
        (KILLED, 16), (("killed within a checkpoint", "write"), 10), (SIGTERM, 4),
        (("killed, and the last checkpoint damaged", "damage"), 8), (FULL, 4),
    ],
    "training in two processes": [(("one killed", "kill one"), 4), (("both killed", "kill all"), 4)],
    "training from a store": [(REFUSED, 2), (CUT, 2), (LATE, 2)],
}  # fmt: skip
KINDS = tuple(
    Kind(case, title, fault, tries, disk=title.startswith("disk "))
    for case, faults in TRIED.items()
    for (title, fault), tries in faults
)
TRIES = sum(kind.tries for kind in KINDS)


def shares(tries: int, kinds: Sequence[Kind]) -> list[tuple[Kind, int, int]]:
    """`tries` (kind, number, of) among the kinds by their shares."""
    total, so_far, found = sum(kind.tries for kind in kinds), 0, []
    for kind in kinds:
        before, so_far = so_far, so_far + kind.tries
        count = so_far * tries // total - before * tries // total
        found += [(kind, number, count) for number in range(count)]
    return found


def attempt(setup: Setup, kind: Kind, number: int, count: int, seed: int, failures: Path) -> Outcome | None:
    """One try, with another moment where the run ended before it; None if that happens `DRAWS` times. Its folder is kept in
    `failures` if it failed."""
    for draw in range(DRAWS):
        name = f"{kind.name} {number} {draw}"
        chance = random.Random(f"{seed} {name}")
        folder = setup.folder / f"try-{checksum(name.encode())[:12]}"
        share = (number + chance.random()) / count * 0.95 * 0.9**draw
        found = Try(setup, kind, share, f"{seed} {name}", folder).outcome(failures)
        if found.hit and not found.identical:
            log(f"{name} (share {share:.3f}, {failures / folder.name}): {found.why}")
        shutil.rmtree(folder, ignore_errors=True)
        if found.hit:
            return found
    log(f"{kind.name}: {DRAWS} runs ended before the fault")
    return None


def log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def measure(
    seed: int,
    tries: int,
    kinds: Sequence[Kind] = KINDS,
    jobs: int = 2,
    failures: Path = Path("chaos-failures"),
) -> dict[Kind, list[Outcome]]:
    """The outcomes of so many tries. Kinds that are not possible on this machine have none; Ctrl-C begins no further try."""
    planned = shares(tries, kinds)
    random.Random(seed).shuffle(planned)
    alone = [
        one for one in planned if one[0].case == "pipeline by a scheduler"
    ]  # they kill each other's workers
    work = [alone, *([one] for one in planned if one not in alone)]
    found: dict[Kind, list[Outcome]] = {kind: [] for kind in kinds if any(one[0] is kind for one in planned)}
    begun, over = itertools.count(1), threading.Event()
    with tempfile.TemporaryDirectory(prefix="chaos-") as place:
        setup = Setup(Path(place))
        try:
            setup.prepare({kind.case for kind in found})

            def some(part: list[tuple[Kind, int, int]]) -> None:
                for kind, number, count in part:
                    if over.is_set():
                        return
                    log(f"  {next(begun)} of {len(planned)}: {kind.name}")
                    with contextlib.suppress(NotPossible):
                        outcome = attempt(setup, kind, number, count, seed, failures)
                        found[kind] += [outcome] if outcome else []

            with ThreadPoolExecutor(jobs) as lanes:
                try:
                    for done in [lanes.submit(some, part) for part in work]:
                        done.result()
                except KeyboardInterrupt:
                    over.set()
                    lanes.shutdown(cancel_futures=True)
        finally:
            setup.close()
    return found


ORDER = ("start", "ingest", "filter", "dedup", "redact", "ledger", "split", "tokenizer", "shard", "report")


def places(outcomes: Sequence[Outcome]) -> str:
    """How many faults came where, in the order of a run."""
    counts = Counter(one.where for one in outcomes)
    rank = {name: number for number, name in enumerate(ORDER)}
    names = sorted(counts, key=lambda name: (name == "end", rank.get(name, len(ORDER)), len(name), name))
    return ", ".join(f"{name} {counts[name]}" for name in names)


def table(found: dict[Kind, list[Outcome]]) -> list[str]:
    """The table as Markdown, with a row for all."""
    lines = [
        "| run | fault | tried | run again | survived | identical | where the fault came |",
        "|---|---|---:|---:|---:|---:|---|",
    ]
    whole = [one for outcomes in found.values() for one in outcomes]
    for kind, outcomes in [*found.items(), (None, whole)]:
        name = f"{kind.case} | {kind.title}" if kind else "**all** |"
        counts = [sum(getattr(one, what) for one in outcomes) for what in ("again", "survived", "identical")]
        cells = (
            [str(len(outcomes)), *map(str, counts), places(outcomes) if kind else ""]
            if outcomes
            else ["not tried", *[""] * 4]
        )
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench chaos", description=_EXPLAINED)
    parser.add_argument("--seed", type=int, default=1, help="another seed, other moments (default: 1)")
    parser.add_argument("--tries", type=int, default=TRIES, help=f"of all kinds together (default: {TRIES})")
    parser.add_argument(
        "--kind", nargs="*", choices=[kind.name for kind in KINDS], metavar="NAME", help="default: all"
    )
    parser.add_argument(
        "--jobs", type=int, default=min(2, os.cpu_count() or 1), help="tries at once (default: 2)"
    )
    parser.add_argument(
        "--save", type=Path, default=Path("chaos-failures"), help="folder of tries that failed"
    )
    return parser.parse_args()


def main() -> None:
    """Print a table; exits with 1 if a try was not survived, or gave other bytes."""
    options = arguments()
    kinds = [kind for kind in KINDS if not options.kind or kind.name in options.kind]
    found = measure(options.seed, options.tries, kinds, options.jobs, options.save)
    print(f"{_EXPLAINED}\n\nSeed {options.seed}.\n")
    print("\n".join(table(found)))
    if any(not one.identical for outcomes in found.values() for one in outcomes):
        sys.exit(1)


if __name__ == "__main__":
    main()
