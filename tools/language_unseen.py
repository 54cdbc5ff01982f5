"""How right a model is that was not shown the Universal Declaration of Human Rights, by the Declaration: the figure for rare languages.

    python -m tools.language_unseen FOLDER     FOLDER holds texts.parquet; writes unseen.ftz (trained if it is not there) and
                                               unseen.json, which the card of the shipped model quotes

The model is trained as the shipped one is, on the same texts but those. Texts are whole translations, and their pieces of about
150 characters. lid.176 (learnt from Wikipedia, Tatoeba and SETimes: not from the Declaration) answers to the same texts.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from corpusmill.pipeline.filter.classifiers import fasttext_model
from corpusmill.pipeline.filter.classifiers.calibration import calibration_error
from corpusmill.pipeline.filter.classifiers.language import Profile
from tools import language_codes, language_profile, train_language
from tools.language_figures import accuracy, answers, load, macro_f1
from tools.language_judged import Judged, declarations

MODEL: Final = "unseen.ftz"
FIGURES: Final = "unseen.json"


def model(folder: Path) -> Path:
    """The model without the Declaration, and its profile beside it."""
    path = folder / MODEL
    table = pq.read_table(folder / "texts.parquet")
    keep = ~np.isin(table["family"].to_numpy(zero_copy_only=False), ["declaration"])
    table = table.filter(pa.array(keep))
    if not path.exists():
        train_language.train(table, path, train_language.SIZE, train_language.QUANTIZE)
    known, _ = language_profile.fitted(table, path)
    path.with_suffix(".json").write_text(json.dumps(known), encoding="utf-8")
    return path


def figures(path: Path) -> list[dict[str, Any]]:
    """A row each for whole translations and pieces, in all languages and in those that the model has a label for."""
    own = load(path)
    known = Profile.read(path.with_suffix(".json"), own.labels)
    other = load(fasttext_model.MODELS / "lid.176.ftz")
    rows = []
    for judged in (declarations(), declarations(pieces=True)):
        found, scores = answers(own, known, judged.texts)
        theirs = [language_codes.label(one) or one for one in answers(other, None, judged.texts)[0]]
        for what, labels in (
            ("languages with a label", set(own.labels)),
            ("all languages", set(judged.labels)),
        ):
            use = [n for n, label in enumerate(judged.labels) if label in labels]
            part = Judged(judged.name, [judged.texts[n] for n in use], [judged.labels[n] for n in use])
            right = np.array([found[n] == judged.labels[n] for n in use])
            rows.append({
                "set": f"{judged.name}: {what}", "texts": len(use), "languages": len(set(part.labels)),
                "accuracy": float(right.mean()), "macro F1": macro_f1([found[n] for n in use], part),
                "expected calibration error": calibration_error(scores[use], right),
                "lid.176": accuracy([theirs[n] for n in use], part),
            })  # fmt: skip
    return rows


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.language_unseen", description=__doc__)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    rows = figures(model(given.folder))
    (given.folder / FIGURES).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    for row in rows:
        print(row)


if __name__ == "__main__":
    main()
