"""The card of the shipped model for languages, and its entry in `models.json`.

python -m tools.language_card FOLDER PYCLD2.tar.gz    FOLDER holds texts.parquet
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow.parquet as pq

from corpusmill.common.ids import checksum
from corpusmill.pipeline.filter.classifiers import fasttext_model
from corpusmill.pipeline.filter.classifiers.building import table
from corpusmill.pipeline.filter.classifiers.calibration import calibration_error
from corpusmill.pipeline.filter.classifiers.language import Profile
from tools.language_figures import accuracy, answers, by_label, load, macro_f1
from tools.language_judged import LARGE, Judged, lingua, snippets
from tools.language_packages import GROUPS
from tools.language_unseen import FIGURES
from tools.train_language import QUANTIZE, TRAIN
from tools.train_prose import record

NAME: Final = "language.ftz"
PROFILE: Final = "language.json"
LICENCE: Final = "see language.md"
WRONG: Final = 25  # pairs of languages shown


def card(texts: Path, model: Path, source: Path) -> str:
    """The card as Markdown."""
    shipped = load(model)
    known = Profile.read(model.with_suffix(".json"), shipped.labels)
    scripts = json.loads(model.with_suffix(".json").read_text(encoding="utf-8"))
    sentences = lingua("sentences")
    sets = [
        ("large languages", sentences.among(LARGE)), ("all its languages", sentences),
        ("pairs of words", lingua("word-pairs")), ("single words", lingua("single-words")), ("words of web pages", snippets(source)),
    ]  # fmt: skip
    rows, shown = [], {}
    for what, judged in sets:
        found, scores = answers(shipped, known, judged.texts)
        rows.append(_row(f"{judged.name}: {what}", judged, found, scores))
        shown[what] = (found, judged)
    parts = [
        "# Languages",
        f"Which of {len(shipped.labels) - 1} languages a text is in. Written by `tools.language_card`; do not edit. fastText"
        f" supervised, quantised; {model.stat().st_size:,} bytes, xxh3_128 `{checksum(model.read_bytes())}`.",
        "**Input.** Lower case; letters, digits and apostrophes only; eight windows of 200 characters, evenly spread over the text.",
        f"**Training.** {', '.join(f'{key} {value}' for key, value in (TRAIN | QUANTIZE).items())}. One thread and a fixed seed: the same texts"
        " give the same bytes. `python -m tools.language_texts` fetches and reads the texts, `python -m tools.train_language` trains"
        " on them, `python -m tools.language_profile` writes the profile beside the model.",
        "**Labels.** ISO 639-1, else ISO 639-3. Scripts and regions are no labels: Chinese in either script is `zh`. Bokmål is"
        " `no`, as in lid.176, Nynorsk `nn`; Bosnian, Croatian and Serbian are three, Malay and Indonesian two; Dari is `fa`,"
        " Filipino `tl`, spoken Arabic `ar`, Alemannic `gsw`. `und` is text in no language, in one that it was not shown, or of"
        f" which no answer has a probability of {scripts['unknown']}.",
        "**Priors.** Added to the logits, by how common languages are on the web (Common Crawl's published shares): "
        + "; ".join(f"{name} {group['weight']}" for name, group in scripts["priors"].items())
        + ". Their weight is the largest that costs at most 0.05 % of the right answers on the tuning half of lingua's texts.",
        "**Languages.** " + " ".join(sorted(set(shipped.labels) - {"und"})),
        "## Data it was trained on",
        _sources(texts),
        "The programs' catalogues are under their own licences, copyleft ones among them: this model is a table of numbers made from"
        " their statistics, and holds single words of them, no message. Their translators are named in the packages.",
        "## On sets that it has never seen",
        table(["set", "texts", "languages", "accuracy", "macro F1", "expected calibration error"], rows),
        "Languages without a label count as wrong. Of lingua's texts every second one is judged: temperatures, the weight of the"
        " priors and the share that an answer must reach were fitted to the others, whose errors were read to choose what to take in."
        " The pairs of languages that the first model took for each other in the judged half were known, too, from its card. Of CLD2's"
        " texts its answers were read by language, which chose forms without diacritics (Yoruba, Igbo and others): take their figure"
        " as one of a set that was seen.",
        "**Rare languages.** The Universal Declaration was trained on. A second model, trained in the same way on all texts but the"
        " Declaration (`python -m tools.language_unseen`), is judged by it instead; lid.176 has not learnt from it either (Wikipedia,"
        " Tatoeba, SETimes), nor have lingua (Leipzig's news), py3langid (JRC-Acquis, Wikipedia, Reuters, Debian) and CLD3 (web"
        " pages) as far as their authors say.",
        _unseen(texts.parent / FIGURES),
        "## By language",
        _languages(
            {
                "lingua": shown["all its languages"],
                "web pages": shown["words of web pages"],
            }
        ),
        "## Taken for another",
        _wrong([shown["all its languages"], shown["words of web pages"]]),
        "## What it cannot do",
        "- It cannot part close relatives in short texts: see the table above.\n"
        "- A language without a label may be taken for a relative of it; `python -m bench decisions --task language` has the share.\n"
        "- Its texts are messages of programs, word lists and the Declaration: slang and verse are unlike them.\n"
        "- Romanised text of languages that are written in other scripts is not learnt.",
    ]
    return "\n\n".join(parts) + "\n"


def _row(name: str, judged: Judged, found: Sequence[str], scores: np.ndarray) -> list[object]:
    right = np.array([a == b for a, b in zip(found, judged.labels, strict=True)])
    return [
        name,
        len(judged.texts),
        len(set(judged.labels)),
        accuracy(found, judged),
        macro_f1(found, judged),
        calibration_error(scores, right),
    ]


def _unseen(figures: Path) -> str:
    rows = json.loads(figures.read_text(encoding="utf-8"))
    return table(
        list(rows[0]), [[round(v, 3) if isinstance(v, float) else v for v in row.values()] for row in rows]
    )


def _sources(texts: Path) -> str:
    own = pq.read_table(texts, columns=["label", "family", "text"])
    count: Counter[str] = Counter()
    size: Counter[str] = Counter()
    labels: dict[str, set[str]] = defaultdict(set)
    for batch in own.to_batches():
        for label, family, text in zip(
            *(batch[name].to_pylist() for name in ("label", "family", "text")), strict=True
        ):
            count[family] += 1
            size[family] += len(text)
            labels[family].add(label)
    rows: list[list[object]] = []
    for group in GROUPS:
        names = group.packages if len(group.packages) < 6 else (f"{len(group.packages)} packages",)
        rows.append(
            [
                group.family,
                f"{group.registry}: {', '.join(names)}",
                group.licence,
                count[group.family],
                f"{size[group.family] / 1e6:.1f}",
                len(labels[group.family]),
            ]
        )
    return table(
        ["family", "packages", "licence", "texts of the family", "million characters", "languages"], rows
    )


def _languages(shown: dict[str, tuple[Sequence[str], Judged]]) -> str:
    figures = {name: by_label(*pair) for name, pair in shown.items()}
    every = sorted(set().union(*figures.values()))
    return table(
        ["label", *figures], [[label, *(own.get(label) for own in figures.values())] for label in every]
    )


def _wrong(shown: Sequence[tuple[Sequence[str], Judged]]) -> str:
    pairs: Counter[tuple[str, str]] = Counter()
    for found, judged in shown:
        pairs.update((b, a) for a, b in zip(found, judged.labels, strict=True) if a != b)
    return table(
        ["language", "taken for", "texts"], [[*pair, count] for pair, count in pairs.most_common(WRONG)]
    )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.language_card", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("snippets", type=Path)
    given = parser.parse_args()
    models = fasttext_model.MODELS
    text = card(given.folder / "texts.parquet", models / NAME, given.snippets)
    (models / NAME).with_suffix(".md").write_text(text, encoding="utf-8")
    record(models, NAME, {"profile": PROFILE, "licence": LICENCE})


if __name__ == "__main__":
    main()
