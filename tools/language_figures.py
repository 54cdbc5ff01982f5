"""How right a model for languages is, by set, by language and by length, and the profile that makes its scores probabilities.

python -m tools.language_figures MODEL.ftz PYCLD2.tar.gz
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from corpusmill.common.ids import checksum
from corpusmill.pipeline.filter.classifiers import language, predictor
from corpusmill.pipeline.filter.classifiers.language import Profile
from corpusmill.pipeline.filter.classifiers.predictor import Predictor
from tools.language_judged import LARGE, Judged, declaration, lingua, snippets


def load(path: Path) -> Predictor:
    """The model at a path."""
    found = predictor.load(str(path), checksum(path.read_bytes()))
    assert isinstance(found, Predictor)
    return found


def answers(model: Predictor, known: Profile | None, texts: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """(labels, scores) of texts."""
    labels: list[str] = []
    scores = []
    for first in range(0, len(texts), 4096):
        found = language.identify(pa.array(texts[first : first + 4096], pa.large_string()), model, known)
        labels += [model.labels[n] if n >= 0 else "" for n in found.label.tolist()]
        scores.append(found.score)
    return labels, np.concatenate(scores)


def accuracy(found: Sequence[str], judged: Judged) -> float:
    """The share of right answers."""
    return (
        float(np.mean([a == b for a, b in zip(found, judged.labels, strict=True)]))
        if judged.texts
        else float("nan")
    )


def by_label(found: Sequence[str], judged: Judged) -> dict[str, float]:
    """Label -> the share of its texts that are right."""
    hits: dict[str, list[bool]] = defaultdict(list)
    for own, wanted in zip(found, judged.labels, strict=True):
        hits[wanted].append(own == wanted)
    return {label: float(np.mean(own)) for label, own in hits.items()}


def macro_f1(found: Sequence[str], judged: Judged) -> float:
    """The mean over the set's labels of F1."""
    right = Counter(b for a, b in zip(found, judged.labels, strict=True) if a == b)
    said, wanted = Counter(found), Counter(judged.labels)
    return float(np.mean([2 * right[label] / (said[label] + wanted[label]) for label in wanted]))


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tools.language_figures", description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("snippets", type=Path)
    parser.add_argument("--profile", type=Path)
    parser.add_argument("--worst", type=int, default=40)
    given = parser.parse_args()
    model = load(given.model)
    known = Profile.read(given.profile, model.labels) if given.profile else None
    print(f"{len(model.labels)} labels")
    sentences = lingua("sentences")
    sets = [sentences, lingua("word-pairs"), lingua("single-words"), declaration(), snippets(given.snippets)]
    for judged in [sentences.among(LARGE), *sets]:
        inside = judged.among(model.labels)
        found, _ = answers(model, known, inside.texts)
        own = by_label(found, inside)
        by_label_mean, every = (
            np.mean(list(own.values())),
            accuracy(answers(model, known, judged.texts)[0], judged),
        )
        print(
            f"{judged.name}: {len(inside.texts)} texts of {len(own)} labels: accuracy {accuracy(found, inside):.4f}, by label"
            f" {by_label_mean:.4f}; all {every:.4f} of {len(set(judged.labels))}"
        )
        worst = sorted(own.items(), key=lambda one: one[1])[: given.worst]
        wrong: dict[str, Counter[str]] = defaultdict(Counter)
        for a, b in zip(found, inside.labels, strict=True):
            if a != b:
                wrong[b][a] += 1
        print(
            "   ",
            " ".join(
                f"{label}:{share:.2f}({','.join(k for k, _ in wrong[label].most_common(2))})"
                for label, share in worst
                if share < 0.97
            ),
        )


if __name__ == "__main__":
    main()
