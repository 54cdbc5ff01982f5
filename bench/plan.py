"""What every stage of a run costs: the constants of `corpusmill plan-run`, and how good its plans are.

A recipe of all stages runs on one worker, in processes of its own, over JSON Lines of three sizes of one make (`corpus.py`).
The run itself measures CPU seconds, bytes, requests and peak memory of each stage (`pipeline/engine/planning/meter.py`). How
good a plan is shows on the largest, with constants from the two others; those that ship are fitted to all three. What the
driver holds for partitions, slices and rows is measured apart, at a hundredth and a tenth of the numbers of ten billion
documents (`_plan_driver.py`). Also written: docs/planning.md, from the template of `_plan_page.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench import _plan_driver as driver
from bench import _plan_page as page
from bench import corpus, natural
from bench._scale_fit import not_negative
from bench.peers import ONE_THREAD
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.planning.constants import Constants, StageConstants
from corpusmill.schemas.recipe import Recipe

ROOT = Path(__file__).resolve().parent.parent
SIZES = (10, 40, 160)  # MB of text
WIDE = (
    40  # MB of text in one partition: for the memory that a partition takes, which smaller ones do not show
)
MEAN_BYTES = 3000
PARTITIONS = 16  # about; so their size grows with that of the corpus
BY_DRIVER = {
    "tokenizer": "sample_mb",
    "ingest": "input_mb",
}  # stages of which the driver has a measured part of its own
QUESTIONS = 500  # of the evaluation set that is looked for
Run = dict[str, Any]


def recipe(folder: Path, megabytes: float, wide: bool = False) -> dict[str, Any]:
    """The recipe of a run below `folder`, whose documents lie in `in/`."""
    return {
        "name": "plan", "output": str(folder / "run"),
        "sources": {file.stem: {"paths": [str(file)], "min_kept": 0} for file in sorted((folder / "in").glob("*.jsonl"))},
        "ingest": {"partition_mb": max(0.25, (8 if wide else 4 / PARTITIONS) * megabytes / 1.05)},
        "filter": {"rules": ["gopher_quality", "gopher_repetition"]},
        "decontaminate": {"against": [str(folder / "evals.jsonl")]},
        "tokenizer": {"vocab_size": 8192}, "shard": {"shard_mb": max(1.0, megabytes / 20)},
        "cluster": {"workers": 1},
    }  # fmt: skip


def write(folder: Path, megabytes: float, wide: bool = False) -> None:
    """The documents, a file of JSON Lines for each source (`wide`: one for all), and questions that some of them hold."""
    rows = corpus.plan(int(megabytes * 1e6 / MEAN_BYTES), MEAN_BYTES)
    texts = corpus.texts(rows).to_pylist()
    names = corpus.real_text().sources
    (folder / "in").mkdir(parents=True)
    for number, name in enumerate(names):
        mine = np.flatnonzero(rows["source"] == number).tolist()
        with (folder / f"in/{'all' if wide else name}.jsonl").open("a", encoding="utf-8") as file:
            file.writelines(json.dumps({"id": str(i), "text": texts[i]}) + "\n" for i in mine)
    words = [texts[i].split() for i in range(0, len(texts), max(100, len(texts) // QUESTIONS))]
    questions = [{"question": " ".join(some[3:30]), "answer": "none"} for some in words if len(some) > 40]
    (folder / "evals.jsonl").write_text(
        "".join(json.dumps(one) + "\n" for one in questions), encoding="utf-8"
    )


def child(folder: str, megabytes: str, wide: str = "") -> None:
    """What the process does: it runs, and prints what each stage used as JSON."""
    from corpusmill.pipeline.engine.cluster import Workers
    from corpusmill.pipeline.engine.progress import Progress
    from corpusmill.pipeline.engine.runner import Run as Job

    made = Recipe.model_validate(recipe(Path(folder), float(megabytes), bool(wide)))
    with Workers(made.cluster, None, Progress(quiet=True)) as workers:
        job = Job(made, Folder(made.output_url), workers, Progress(quiet=True))
        manifests = {one.stage: one for one in job.execute()}
        used = {
            name: {
                **job.scheduler.used(name).model_dump(),
                "worker_cpu": booked.workers.cpu, "driver_cpu": booked.driver.cpu,
            }
            for name, booked in job.scheduler.booked.items()
        }  # fmt: skip
    found = {name: one.model_dump(mode="json", exclude={"files"}) for name, one in manifests.items()}
    print(json.dumps({"used": used, "manifests": found}))


def measure(megabytes: float, wide: bool = False) -> Run:
    """`used` by stage, the `manifests`, the `shape` of the input, and what else constants are made from."""
    from corpusmill.pipeline.ingest.stage import Ingest

    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        write(place, megabytes, wide)
        command = [sys.executable, "-c", "import sys; from bench.plan import child; child(*sys.argv[1:])"]
        done = subprocess.run(
            [*command, name, str(megabytes), *(["wide"] if wide else [])], stdout=subprocess.PIPE, text=True, cwd=ROOT, check=True,
            env={**os.environ, **ONE_THREAD},
        )  # fmt: skip
        found: Run = json.loads(done.stdout)
        made = Recipe.model_validate(recipe(place, megabytes, wide))
        stored = sum(file.stat().st_size for file in (place / "run/ingest/documents").glob("*.parquet"))
        return {
            **found, "recipe": made, "megabytes": megabytes, "stored": stored, "shape": Ingest(made).shape(),
            "sources": len(made.sources),
        }  # fmt: skip


def constants(runs: Sequence[Run], wide: Run, known: dict[str, float]) -> Constants:
    """Fitted to the runs: least squares on relative errors, none below 0; memory also to the `wide` run. `known`: those of the driver."""
    from bench.__main__ import machine
    from corpusmill.pipeline.dedup.estimate.corpus import measured

    def share(key: str, of: str) -> float:
        counts = [run["manifests"]["ingest"]["counts"] for run in runs]
        return sum(one[key] for one in counts) / sum(one[of] for one in counts)

    tokens = sum(run["manifests"]["shard"]["counters"]["tokens"] for run in runs)
    text = sum(run["manifests"]["redact"]["counts"]["bytes_kept"] for run in runs)
    ingested = sum(run["manifests"]["ingest"]["counts"]["bytes_kept"] for run in runs)
    stored = sum(run["stored"] for run in runs) / ingested
    first = Constants(
        machine=machine(), bytes_per_document=share("bytes_kept", "kept"), stored=stored, bytes_per_token=text / tokens,
        dispatch_seconds=measured().dispatch_seconds,
        task_bytes=measured().task_bytes, **known, stages={},
    )  # fmt: skip
    stages = {name: _of_stage(name, runs, wide, first) for name in runs[0]["used"]}
    return first.model_copy(update={"stages": stages})


def _of_stage(name: str, runs: Sequence[Run], wide: Run, known: Constants) -> StageConstants:
    used = [run["used"][name] for run in runs]
    rows = [_incoming(run, name) for run in runs]
    counts = [run["manifests"][name]["counts"] for run in runs]
    mine = [one["worker_cpu" if name in BY_DRIVER else "cpu_seconds"] for one in used]
    seconds = {}
    if name == "dedup":  # its own constants, and what a process begins with
        seconds["process"] = max(
            0.0,
            float(
                np.mean(
                    [one["cpu_seconds"] - _dedup(run, known) for one, run in zip(used, runs, strict=True)]
                )
            ),
        )
    else:
        matrix = np.array([[row["mb"], 1.0] for row in rows])
        per_mb, process = not_negative(matrix, np.array(mine), np.maximum(mine, 1e-3))
        seconds |= {"mb": float(per_mb), "process": float(process)}
    sizes = np.array(
        [row["mb"] * 1e6 / row["partitions"] for row in (_incoming(run, name) for run in (*runs, wide))]
    )
    peaks = np.array([run["used"][name]["worker_bytes"] for run in (*runs, wide)])
    base, held = not_negative(np.stack([np.ones(len(sizes)), sizes], axis=1), peaks, peaks)
    found: dict[str, float] = {"base_bytes": base, "held": held}
    if name in BY_DRIVER:
        unit = BY_DRIVER[name]
        amounts = np.array([row[unit] for row in rows])
        spent = np.maximum([one["driver_cpu"] for one in used], 1e-3)
        seconds[unit] = float(not_negative(np.stack([amounts, np.ones(len(rows))], axis=1), spent, spent)[0])
        lines = np.stack([np.ones(len(rows)), amounts * 1e6], axis=1)
        peaks = np.array([one["driver_bytes"] for one in used])
        found["driver_held"] = not_negative(lines, peaks, peaks)[1]
    if name in ("filter", "dedup", "decontaminate", "redact"):
        found["kept"] = sum(one["bytes_kept"] for one in counts) / max(
            1, sum(one["bytes_in"] for one in counts)
        )
        found["kept_documents"] = sum(one["kept"] for one in counts) / max(
            1, sum(one["docs_in"] for one in counts)
        )
    bare = StageConstants(seconds=seconds, **{key: float(value) for key, value in found.items()})
    plans = [_bare(run, name, known, bare) for run in runs]
    pairs = list(zip(used, plans, strict=True))
    over = sum(one["written_bytes"] - plan.written_bytes for one, plan in pairs)
    more = [one["driver_bytes"] - plan.driver_bytes for one, plan in pairs]
    documents = sum(row["documents"] for row in rows)
    rest = {
        "driver_base": max(0.0, float(np.mean(more))),
        "row_bytes": 0.0 if name == "dedup" else max(0.0, over / documents),
    }
    return bare.model_copy(update=rest)


def _incoming(run: Run, name: str) -> dict[str, float]:
    """What a stage found: documents, MB of text, partitions, MB of input and of the tokenizer's sample."""
    counts = run["manifests"][name]["counts"]
    if name in ("ledger", "report", "ingest"):
        counts = run["manifests"]["ingest"]["counts"]
        counts = {"docs_in": counts["docs_in"], "bytes_in": counts["bytes_kept"]}
    elif not counts["docs_in"]:
        last = run["manifests"]["redact"]["counts"]
        counts = {"docs_in": last["kept"], "bytes_in": last["bytes_kept"]}
    return {
        "documents": counts["docs_in"], "mb": counts["bytes_in"] / 1e6,
        "partitions": len(run["manifests"]["ingest"]["partitions"]), "input_mb": run["shape"].input_bytes / 1e6,
        "sample_mb": run["manifests"]["tokenizer"]["counters"]["sample_bytes"] / 1e6,
    }  # fmt: skip


def _planned(run: Run, known: Constants) -> Any:
    from corpusmill.pipeline.engine.custom import load_stage
    from corpusmill.pipeline.engine.planned import stages_of
    from corpusmill.pipeline.engine.planning.estimate import Terms, plan

    made = run["recipe"]
    stages = [load_stage(name, made) for name in stages_of(made)]
    counts = run["manifests"]["ingest"]["counts"]
    shape = run["shape"]._replace(
        text_bytes=float(counts["bytes_kept"]),
        partitions=float(len(run["manifests"]["ingest"]["partitions"])),
    )
    each = counts["bytes_kept"] / counts["kept"]
    return plan(stages, shape, Terms(1, False), run["sources"], each, known)


def _dedup(run: Run, known: Constants) -> float:
    """CPU seconds of deduplication by its own estimator."""
    return float(_planned(run, known).stage("dedup").cpu_seconds)


def _bare(run: Run, name: str, known: Constants, own: StageConstants) -> Any:
    """The plan of a stage, if nothing is written for its rows, and the driver has no memory of its own."""
    stages = {other: StageConstants(**_shares(run, other)) for other in run["used"]}
    return _planned(run, known.model_copy(update={"stages": {**stages, name: own}})).stage(name)


def _shares(run: Run, name: str) -> dict[str, float]:
    counts = run["manifests"][name]["counts"]
    if name == "ingest" or not counts["docs_in"]:
        return {}
    return {
        "kept": counts["bytes_kept"] / counts["bytes_in"],
        "kept_documents": counts["kept"] / counts["docs_in"],
    }


def main(sizes: Sequence[float] = SIZES) -> None:
    """Print the tables; write the constants and docs/planning.md."""
    from corpusmill.pipeline.engine.planning.constants import measured, path

    if not natural.available():
        print("not measured: the real text (../shared/data) is not beside this checkout")
        return
    measure(1.0)  # kernels are compiled
    structures = driver.measure()
    known = driver.per_unit(structures)
    runs, wide = [measure(size) for size in sizes], measure(WIDE, wide=True)
    held_out = constants(runs[:-1], wide, known)
    for run in runs:
        run["plan"] = _planned(run, held_out)
    path().write_text(constants(runs, wide, known).model_dump_json(indent=1) + "\n", encoding="utf-8")
    measured.cache_clear()
    tables, driver_table = page.tables(runs), page.structures(structures)
    (ROOT / "docs" / "planning.md").write_text(page.page(tables, driver_table), encoding="utf-8")
    print(f"{tables}\n{driver_table}")
    print("\nThe plan for 10 billion documents: docs/planning.md.")


if __name__ == "__main__":
    main()
