"""Languages: the shipped model on texts that it was not trained on, with lid.176, CLD3, py3langid and lingua on the same texts.

- half of lingua's test sentences, pairs of words and single words in 75 languages, 34 of them the large ones; to the other half
  temperatures, the priors' weight and the least share of an answer were fitted;
- CLD2's own test texts, words of web pages in 158 languages, out of the source package of pycld2. An earlier model's answers to
  them were read by language when texts for training were chosen. The shipped model has learnt from the Universal Declaration; its
  card has the figure on that of a model that has not;
- what is no language that it knows: paragraphs of the Declaration in languages that it was not shown, random letters, code.

`--labelled FILE`: JSON lines, `text` and `label` (ISO 639-1, else 639-3, as `language.code`).
"""

from __future__ import annotations

import json
import random
import string
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from bench import peers
from bench._decisions import Row
from bench.peers import NotMeasured, Peer
from tools import language_figures, language_judged
from tools.language_codes import label
from tools.language_judged import LARGE, SNIPPETS, Judged

PEERS = (
    Peer("py3langid", ("py3langid==0.4.0",), "languages.py"),
    Peer("CLD3", ("cld3-py==3.1.0",), "languages.py"),
    Peer("lingua", ("lingua-language-detector==2.1.1",), "languages.py"),
)
SURE = 0.65  # the threshold of a recipe

Answers = tuple[list[str], "np.ndarray"]
Identify = Callable[[Sequence[str]], Answers]


def ours() -> tuple[Identify, list[str]]:
    """(the shipped model as the stage uses it, its labels)."""
    from corpusmill.pipeline.filter.classifiers import fasttext_model, language, predictor

    file = fasttext_model.shipped(fasttext_model.LANGUAGE_MODEL)
    model = predictor.load(file.path, file.xxh3)
    known = language.profile(str(file.profile), tuple(model.labels))
    return lambda texts: language_figures.answers(model, known, texts), model.labels


def lid176(texts: Sequence[str]) -> Answers:
    """fastText's lid.176.ftz."""
    from corpusmill.pipeline.filter.classifiers import fasttext_model, predictor

    file = fasttext_model.shipped("lid.176.ftz")
    found, scores = language_figures.answers(predictor.load(file.path, file.xxh3), None, texts)
    return [label(one) or one for one in found], scores


def peer_answers(peer: Peer, texts: Sequence[str]) -> Answers:
    """The labels and probabilities of a tool in an environment of its own. Raises `NotMeasured`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "texts.json"
        path.write_text(json.dumps(list(texts)), encoding="utf-8")
        found = peers.ask(peer, peer.name, path)
    return [label(one) or one for one, _ in found], np.array([score for _, score in found], np.float32)


def snippets() -> Judged | None:
    """CLD2's texts; None where the source package cannot be had."""
    folder = peers.CACHE / "pycld2-source"
    if not list(folder.glob("*.tar.gz")):
        folder.mkdir(parents=True, exist_ok=True)
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "--no-build-isolation",
            "--no-binary",
            ":all:",
        ]
        subprocess.run([*command, "-d", str(folder), *SNIPPETS], check=False, capture_output=True)
    found = next(iter(folder.glob("*.tar.gz")), None)
    return None if found is None else language_judged.snippets(found)


def nothing() -> list[str]:
    """Random letters, and this project's own code."""
    rng = random.Random(7)
    words = [
        " ".join("".join(rng.choices(string.ascii_lowercase, k=rng.randint(2, 10))) for _ in range(12))
        for _ in range(300)
    ]
    lines = (
        Path(peers.__file__).read_text(encoding="utf-8").splitlines()
        + Path(language_judged.__file__).read_text(encoding="utf-8").splitlines()
    )
    code = ["\n".join(lines[at : at + 6]) for at in range(0, len(lines) - 6, 6)]
    return [*words, *(part for part in code if '"""' not in part and "#" not in part)]


def rows(labelled: Path | None) -> list[Row]:
    """The rows of `bench decisions`."""
    own, labels = ours()
    tools: dict[str, Identify] = {"lid.176": lid176}
    for peer in PEERS:
        tools[peer.label] = lambda texts, peer=peer: peer_answers(peer, texts)  # type: ignore[misc]
    if labelled is not None:
        given = [
            json.loads(line) for line in labelled.read_text(encoding="utf-8").splitlines() if line.strip()
        ]
        judged = Judged(labelled.name, [row["text"] for row in given], [row["label"] for row in given])
        return _rows(own, tools, [("language accuracy", judged, None)])
    sentences = language_judged.lingua("sentences")
    sets = [
        ("language accuracy, large languages", sentences.among(LARGE), 0.995),
        ("language accuracy, 75 languages", sentences, None),
        ("language accuracy, pairs of words", language_judged.lingua("word-pairs"), None),
        ("language accuracy, single words", language_judged.lingua("single-words"), None),
    ]
    rare = snippets()
    if rare is not None:
        sets.insert(2, (f"language accuracy, {len(set(rare.labels))} languages", rare, 0.90))
    found = _rows(own, tools, sets)
    outside = language_judged.declaration().without([*labels, *_shown()])
    found.append(
        _certainty(
            own, tools, "not called a language with certainty, unknown languages", outside.name, outside.texts
        )
    )
    found.append(
        _certainty(
            own, tools, "not called a language with certainty, no language", "random letters, code", nothing()
        )
    )
    return found


def _shown() -> list[str]:
    """Languages whose Declaration the model was shown as unknown."""
    from tools.train_language import is_judged

    return [one for one in set(language_judged.declaration().labels) if not is_judged(one)]


def _rows(
    own: Identify, tools: dict[str, Identify], sets: list[tuple[str, Judged, float | None]]
) -> list[Row]:
    from corpusmill.pipeline.filter.classifiers.calibration import calibration_error

    out = []
    for decision, judged, wanted in sets:
        answers, scores = own(judged.texts)
        right = np.array([a == b for a, b in zip(answers, judged.labels, strict=True)])
        off = calibration_error(scores, right)
        others = _measured(
            tools, judged.texts, lambda found, _, judged=judged: language_figures.accuracy(found, judged)
        )  # type: ignore[misc]
        note = (
            f"macro F1 {language_figures.macro_f1(answers, judged):.3f}; expected calibration error {off:.3f}"
        )
        out.append(
            Row(decision, f"{judged.name}, {len(judged.texts):,}", float(right.mean()), others, wanted, note)
        )
    return out


def _certainty(own: Identify, tools: dict[str, Identify], decision: str, name: str, texts: list[str]) -> Row:
    def unsure(found: list[str], scores: np.ndarray) -> float:
        return 1 - float(
            np.mean(
                [one not in ("", "und") and score >= SURE for one, score in zip(found, scores, strict=True)]
            )
        )

    return Row(
        decision,
        f"{name}, {len(texts):,}",
        unsure(*own(texts)),
        _measured(tools, texts, unsure),
        None,
        f"score below {SURE}, or no language",
    )


def _measured(
    tools: dict[str, Identify], texts: list[str], figure: Callable[[list[str], np.ndarray], float]
) -> dict[str, float]:
    out = {}
    for name, identify in tools.items():
        try:
            out[name] = figure(*identify(texts))
        except NotMeasured as error:
            print(f"  {name}: {error}", file=sys.stderr)
    return out
