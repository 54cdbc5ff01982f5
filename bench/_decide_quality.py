"""Quality: AUC of prose against what stands beside it (menus, lists, notices, listings) on each family of sets, by our model over
signals trained without that family; beside it, the shipped fastText classifier alone, the signal that is best alone on the
training sets, and tf-idf with logistic regression on the same training sets.

The web pages are those that people marked: Readability's accepted articles against the rest of the page, and the lines between
marked segments of trafilatura's evaluation set. The training sets are made of packages that are fetched at the first call.

`--labelled FILE`: JSON lines, CSV or TSV with `text` and `label` (1, true, good or prose: positive); the shipped model is judged.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench import peers
from bench._decisions import Row
from bench.natural import DATA
from bench.peers import NotMeasured, Peer

PEER = Peer("tf-idf", ("scikit-learn==1.9.1", "numpy==2.4.6", "scipy==1.17.1"), "tfidf_quality.py")
TFIDF = f"tf-idf, {PEER.label}"
PACKAGES = peers.CACHE / "quality-packages"
POSITIVE = ["1", "true", "True", "good", "prose"]
WEB, WANTED = "web", 0.93
OWN = "own"  # the group of the user's file

Floats = npt.NDArray[np.float64]


def rows(labelled: Path | None) -> list[Row]:
    """One row for each family that has both classes, and for each set of web pages; or one for the user's file."""
    return _own(labelled) if labelled is not None else _shared()


def _shared() -> list[Row]:
    from tools import train_quality
    from tools.quality_sets import parts

    if not _packages():
        return []
    data = train_quality.measured(parts(DATA, PACKAGES))
    odds = train_quality.left_out(data)
    truths = [np.asarray(part.data.positive, np.bool_) for part in data.sets]
    judged = [
        family
        for family in train_quality.families(data)
        if len(
            np.unique(
                np.concatenate([t for t, p in zip(truths, data.sets, strict=True) if p.family == family])
            )
        )
        == 2
    ]
    texts = [text for part in data.sets for text in part.data.texts]
    groups = [part.family for part in data.sets for _ in part.data.texts]
    scores = _tfidf(texts, np.concatenate(truths).tolist(), groups, judged)
    found = []
    for family in judged:
        places = [i for i, part in enumerate(data.sets) if part.family == family]
        others = [i for i in range(len(data.sets)) if i not in places]
        sign, signal = _best_alone(*train_quality.stacked(data, others)[:2])
        sizes = np.cumsum([0, *(len(truths[i]) for i in places)])
        subsets = [("all", places)] + (
            [(data.sets[i].data.name, [i]) for i in places] if family == WEB else []
        )
        for name, some in subsets:
            truth = np.concatenate([truths[i] for i in some])
            columns = {key: np.concatenate([data.columns[i][key] for i in some]) for key in data.columns[0]}
            known = {
                "fastText alone": _auc(np.concatenate([data.prose[i] for i in some]), truth),
                f"{signal} alone": _auc(sign * columns[signal], truth),
            }
            if scores:
                at = [(sizes[places.index(i)], sizes[places.index(i) + 1]) for i in some]
                known[TFIDF] = _auc(np.concatenate([np.array(scores[family])[a:b] for a, b in at]), truth)
            notes = [f"best signal in hindsight: {_hindsight(columns, truth)}"]
            notes += ["fastText has learnt from part of it"] if any(data.sets[i].known for i in some) else []
            shown = family if name == "all" else name
            ours = _auc(np.concatenate([odds[i] for i in some]), truth)
            found.append(
                Row(
                    "quality AUC",
                    f"{shown}, {len(truth):,}",
                    ours,
                    known,
                    WANTED if family == WEB else None,
                    "; ".join(notes),
                )
            )
    return found


def _own(labelled: Path) -> list[Row]:
    from corpusmill.pipeline.filter.classifiers import fasttext_model
    from corpusmill.pipeline.filter.classifiers.labelled import read_labelled
    from corpusmill.pipeline.filter.quality_signals.inputs import QUALITY
    from corpusmill.pipeline.filter.quality_signals.measure import columns_of
    from corpusmill.pipeline.filter.quality_signals.model import load
    from tools.quality_sets import parts

    one = read_labelled(labelled, "text", "label", POSITIVE)
    truth, columns = np.asarray(one.positive, np.bool_), columns_of(one.texts)
    file = fasttext_model.shipped(fasttext_model.SHIPPED["quality_signals"])
    model = load(file.path, file.xxh3)
    known = {"fastText alone": _auc(columns[QUALITY], truth)}
    if DATA.is_dir() and _packages():
        sets = parts(DATA, PACKAGES)
        texts = [*one.texts, *(text for part in sets for text in part.data.texts)]
        labels = [*one.positive, *(label for part in sets for label in part.data.positive)]
        groups = [OWN] * len(one) + [part.family for part in sets for _ in part.data.texts]
        if scores := _tfidf(texts, labels, groups, [OWN]):
            known[TFIDF] = _auc(np.array(scores[OWN]), truth)
    note = f"best signal in hindsight: {_hindsight(columns, truth)}"
    return [
        Row(
            "quality AUC",
            f"{one.name}, {len(one):,}",
            _auc(model.probability(columns), truth),
            known,
            note=note,
        )
    ]


def _auc(found: npt.NDArray[np.generic], truth: npt.NDArray[np.bool_]) -> float:
    from corpusmill.pipeline.filter.classifiers.training import auc

    return auc(np.nan_to_num(found), truth) or 0.0


def _best_alone(columns: dict[str, Floats], truth: npt.NDArray[np.bool_]) -> tuple[float, str]:
    """(1 or -1, the signal that parts the classes best alone, with that sign)."""
    ranked = sorted(
        ((_auc(column, truth), name) for name, column in columns.items()), key=lambda one: -abs(one[0] - 0.5)
    )
    return (1.0 if ranked[0][0] > 0.5 else -1.0), ranked[0][1]


def _hindsight(columns: dict[str, Floats], truth: npt.NDArray[np.bool_]) -> str:
    """The signal that is best alone on the judged texts themselves, which nobody knows beforehand."""
    sign, name = _best_alone(columns, truth)
    return f"{name} {_auc(sign * columns[name], truth):.3f}"


def _tfidf(
    texts: Sequence[str], labels: Sequence[bool], groups: Sequence[str], judged: Sequence[str]
) -> dict[str, list[float]] | None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "texts.json"
        given = {
            "texts": list(texts),
            "labels": list(map(int, labels)),
            "groups": list(groups),
            "judged": list(judged),
        }
        path.write_text(json.dumps(given), encoding="utf-8")
        try:
            found: dict[str, list[float]] = peers.ask(PEER, path)
            return found
        except NotMeasured as error:
            print(f"{TFIDF}: not measured: {error}", file=sys.stderr)
            return None


def _packages() -> bool:
    """Whether the packages are there, fetched now if they were not."""
    from tools import quality_packages

    try:
        quality_packages.fetch(PACKAGES)
        return True
    except (OSError, subprocess.CalledProcessError) as error:
        print(
            f"quality: the training sets are not measured: packages cannot be fetched: {error}",
            file=sys.stderr,
        )
        return False
