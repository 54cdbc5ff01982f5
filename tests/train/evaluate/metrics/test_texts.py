"""BLEU, chrF, ROUGE and METEOR are those of the libraries that published figures come from, with intervals of ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

from corpusmill.common.errors import UserError
from corpusmill.train.commands import register
from corpusmill.train.evaluate.metrics import texts
from corpusmill.train.evaluate.metrics.files import score_texts
from corpusmill.train.evaluate.metrics.texts import bleu, chrf, meteor, rouge
from tests.command_line import CliRunner

sacrebleu = pytest.importorskip("sacrebleu", reason="the extra `metrics` is not installed")
WORDS = [
    "the",
    "cat",
    "sat",
    "on",
    "a",
    "mat",
    "while",
    "dogs",
    "were",
    "running",
    "quickly",
    "through",
    ",",
    "the",
    "Garden",
    ".",
    "and",
    "houses",
]


def corpus(count: int = 40, seed: int = 0) -> tuple[list[str], list[list[str]]]:
    """Texts, and one or two references of each that share words with them."""
    rng = np.random.default_rng(seed)
    found, references = [], []
    for number in range(count):
        words = rng.choice(WORDS, rng.integers(4, 15)).tolist()
        found.append(" ".join(words))
        wanted = []
        for _ in range(1 + number % 2):
            other = [word if rng.random() < 0.7 else str(rng.choice(WORDS)) for word in words]
            wanted.append(" ".join(other[: len(other) - int(rng.integers(0, 2))]))
        references.append(wanted)
    return found, references


def test_bleu_and_chrf_are_sacrebleus() -> None:
    found, references = corpus()
    columns = [[one[0] for one in references], [one[1] if len(one) > 1 else None for one in references]]
    for name, ours, theirs in (
        ("bleu", bleu(found, references), sacrebleu.BLEU()),
        ("chrf", chrf(found, references), sacrebleu.CHRF()),
        ("chrf++", chrf(found, references, word_order=2), sacrebleu.CHRF(word_order=2)),
    ):
        wanted = theirs.corpus_score(found, columns)
        one = ours.figures[name]
        assert one.value == pytest.approx(wanted.score, abs=1e-9) and ours.signature == str(
            theirs.get_signature()
        )
        assert (one.low or 0) < one.value < (one.high or 0) and one.method == "bootstrap" and one.n == 40
    assert bleu(found, references).signature.startswith(
        "nrefs:var|case:mixed|eff:no|tok:13a|smooth:exp|version:"
    )


def test_the_interval_of_bleu_is_that_of_sacrebleus_bootstrap() -> None:
    found, references = corpus(120)
    wanted = sacrebleu.BLEU().corpus_score(found, [[one[0] for one in references]], n_bootstrap=1000)
    one = bleu(found, [one[:1] for one in references]).figures["bleu"]
    assert ((one.high or 0) - (one.low or 0)) / 2 == pytest.approx(wanted._ci, rel=0.1)
    pairs = bleu([*found, *found], [one[:1] for one in references] * 2, list(range(120)) * 2).figures["bleu"]
    assert pairs.value == pytest.approx(one.value) and pairs.se == pytest.approx(one.se or 0, rel=0.1)


def test_rouge_is_rouge_scores_on_its_known_cases() -> None:
    """Of its README and its tests: the values are published with it."""
    (plain,) = (
        rouge(["The quick brown dog jumps on the log."], [["The quick brown fox jumps over the lazy dog"]]),
    )
    assert plain.figures["rouge1"].value == pytest.approx(2 * (6 / 8) * (6 / 9) / (6 / 8 + 6 / 9))
    assert plain.figures["rougeL"].value == pytest.approx(2 * (5 / 8) * (5 / 9) / (5 / 8 + 5 / 9))
    assert rouge(["testing two"], [["testing"]]).figures["rouge1"].value == pytest.approx(2 / 3)
    stemmed = rouge(["testing two"], [["tested", "nothing"]], stemmer=True)
    assert stemmed.figures["rouge1"].value == pytest.approx(2 / 3) and "stemmer:porter" in stemmed.signature
    assert rouge(["w1 w2 w6 w7 w8\nw1 w3 w8 w9 w5"], [["w1 w2 w3 w4 w5"]]).figures[
        "rougeLsum"
    ].value == pytest.approx(8 / 15)
    assert rouge(["日本"], [["日本"]]).figures["rouge1"].value == 0  # as documented


def test_meteor_is_its_formula() -> None:
    """Example of nltk's documentation for what matches exactly or by stem: one chunk of six words, then two stems."""
    same = meteor(["the cat sat on the mat"], [["the cat sat on the mat"]]).figures["meteor"]
    assert same.value == pytest.approx(1 - 0.5 * (1 / 6) ** 3)
    # "sat" and "was": 5 of 6 words match, in 2 chunks; precision and recall are 5/6.
    one = meteor(["the cat was on the mat"], [["the cat sat on the mat"]]).figures["meteor"]
    assert one.value == pytest.approx(5 / 6 * (1 - 0.5 * (2 / 5) ** 3))
    stems = meteor(["dogs running"], [["dog runs", "nothing"]])
    assert stems.figures["meteor"].value == pytest.approx(1 - 0.5 * (1 / 2) ** 3)
    assert "synonyms:no" in stems.signature
    assert meteor(["car"], [["automobile"]]).figures["meteor"].value == 0


def test_lists_that_do_not_fit_are_refused() -> None:
    for metric in (bleu, rouge, meteor):
        with pytest.raises(ValueError, match="text 0 has no reference"):
            metric(["a"], [[]])
        with pytest.raises(ValueError, match="1 texts, references of 2"):
            metric(["a"], [["a"], ["b"]])


def test_without_the_extra_one_line_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(texts.importlib, "import_module", missing)
    for metric, package in ((bleu, "sacrebleu"), (rouge, "rouge_score"), (meteor, "nltk")):
        with pytest.raises(
            UserError, match=rf"{package} is not installed: pip install 'corpusmill\[metrics\]'"
        ):
            metric(["a"], [["a"]])


def command(*arguments: Any) -> str:
    app = typer.Typer()
    register(app)
    done = CliRunner().invoke(app, ["score", *map(str, arguments)])
    if done.exception:
        raise done.exception
    return done.stdout


def test_the_command_scores_a_file(tmp_path: Path) -> None:
    found, references = corpus(10)
    file = tmp_path / "texts.jsonl"
    rows = [
        {"text": text, "references": wanted if len(wanted) > 1 else wanted[0], "cluster": n // 2, "samples": 5, "passed": n % 4}
        for n, (text, wanted) in enumerate(zip(found, references, strict=True))
    ]  # fmt: skip
    file.write_text("\n".join(map(json.dumps, rows)))
    names = ["bleu", "rouge", "rouge-stemmed", "squad_f1", "pass@2"]
    options = [part for name in names for part in ("--metric", name)]
    result = json.loads(command(file, *options, "--json"))
    assert result == score_texts(str(file), names)
    clusters = [n // 2 for n in range(10)]
    assert result["metrics"]["bleu"] == bleu(found, references, clusters).figures["bleu"].model_dump()
    assert (
        result["metrics"]["rougeL-stemmed"]
        == rouge(found, references, clusters, True).figures["rougeL"].model_dump()
    )
    assert result["metrics"]["squad_f1"]["clusters"] == 5
    assert result["metrics"]["pass@2"]["value"] == pytest.approx(
        np.mean([(0, 0.4, 0.7, 0.9)[n % 4] for n in range(10)])
    )
    printed = command(file, *options)
    (line,) = [line for line in printed.splitlines() if line.startswith("| bleu ")]
    assert f" {result['metrics']['bleu']['value']:.4f} |" in line and line.endswith("bootstrap |")
    assert f"bleu: {result['signatures']['bleu']}" in printed


def test_mistakes_in_a_file_are_one_line(tmp_path: Path) -> None:
    file = tmp_path / "texts.jsonl"
    for text, metric, message in (
        ("{}", "bluu", "--metric bluu: is none of bleu, .*did you mean 'bleu'"),
        ("", "bleu", "has no rows"), ("[1]", "bleu", "line 1 is not a JSON object"), ("{", "bleu", "line 1 is not a JSON object"),
        ('{"text": "a"}', "squad_f1", "row 1 must have a text `text`, and `references`"),
        ('{"text": "a", "references": [1]}', "squad_f1", "row 1 must have"),
        ('{"samples": 3, "passed": 1}', "pass@5", "row 1 must have `samples`, at least 5"),
    ):  # fmt: skip
        file.write_text(text)
        with pytest.raises(UserError, match=message):
            command(file, "--metric", metric)
    with pytest.raises(UserError, match="no such file"):
        command(tmp_path / "none", "--metric", "bleu")
    for options in ((), ("--glue", "rte"), ("--metric", "bleu", "--glue", "rte", "--data", "x")):
        with pytest.raises(UserError, match="give --metric, or --glue with --data"):
            command(file, *options)
