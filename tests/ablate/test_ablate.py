"""`corpusmill ablate` on corpora whose answer is known, and as a user would: twice, after a kill, with a wrong name."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from bench._planted_truth import STAGES, cases, pieces, recipe_of
from corpusmill.__main__ import build
from corpusmill.ablate.arms import CONTROL, FULL
from corpusmill.ablate.counts import HeldOut, Texts, bits, half, held_out_of, texts_of
from corpusmill.ablate.pool import documents
from corpusmill.common.errors import UserError
from corpusmill.schemas.ablation import Ablation
from corpusmill.train.data.reader import BlockData
from corpusmill.train.data.shards import open_shards
from corpusmill.train.evaluate.ngrams import events
from tests.conftest import ROOT

SPEECHES = ROOT / "examples/corpus/sources/speeches/sotu.jsonl.gz"


def command(*words: str) -> str:
    """What a command prints on stdout."""
    done = CliRunner().invoke(build(words[0]), list(words), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Ablation, Path, int]]:
    """Of each corpus what the command found, its folder, and the sign that is right."""
    folder = tmp_path_factory.mktemp("planted")
    found = {}
    for case in cases(folder):
        file = folder / f"{case.name}.yaml"
        file.write_text(yaml.safe_dump(case.recipe))
        out = folder / f"{case.name}-out"
        result = json.loads(command("ablate", str(file), str(out), "--without", case.stage, "--json"))
        found[case.name] = Ablation.model_validate(result), out, case.sign
    return found


def test_what_was_planted_is_found_with_its_sign_and_nothing_else(planted: dict[str, Any]) -> None:
    for name, (found, _, sign) in planted.items():
        whole, control, arm = found.arms
        assert whole.difference is None and (whole.name, control.name) == (FULL, CONTROL)
        d = arm.difference
        if sign:
            assert d.verdict == "worse" and d.low > 0, name
        else:
            assert d.verdict in ("equal", "unclear") and d.low <= 0 <= d.high, name
        assert control.difference.low < 0 < control.difference.high, name
    assert planted["everything"][0].arms[2].difference.value == 0  # the same documents, in the same halves


def of_stages(out: Path) -> dict[Path, bytes]:
    """The manifests of all stages of all runs; a run has one of its own beside."""
    files = [file for file in out.rglob("manifest.json") if not (file.parent / "split").exists()]
    return {file: file.read_bytes() for file in files}


def test_a_second_call_measures_the_same_and_runs_nothing_again(
    planted: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, out, _ = planted["everything"]
    page = (out / "ablation.html").read_text()
    assert page.count("<circle") == 2 and "without everything" in page
    assert Ablation.model_validate_json((out / "ablation.json").read_text()) == found
    manifests = of_stages(out)
    again = command("ablate", str(out.parent / "everything.yaml"), str(out), "--without", "everything")
    assert "| without everything " in again and "equal" in again
    assert manifests == of_stages(out)
    assert Ablation.model_validate_json((out / "ablation.json").read_text()) == found


def test_no_arm_has_read_the_held_out_text(planted: dict[str, Any]) -> None:
    _, out, _ = planted["20 copies of half of the tokens"]
    held = open_shards(str(out / "base/shards"))
    scored = held_out_of(held.validation, held.set.vocab_size)
    assert len(scored.texts.ids) == len(set(scored.texts.ids)) and scored.bytes.sum() > 0
    for arm in sorted((out / "arms").iterdir()):
        shards = open_shards(str(arm / "shards"))
        assert not shards.validation or not sum(one.index.ntokens for one in shards.validation.values())
        texts = texts_of(shards.train, shards.set.vocab_size)
        assert not set(texts.ids) & set(scored.texts.ids)
        assert shards.set.tokenizer_xxh3 == held.set.tokenizer_xxh3


def made(ids: list[str], tokens: int = 40) -> Texts:
    """Documents of random tokens, equal for equal ids."""
    parts = [np.random.default_rng(int(name)).integers(0, 50, tokens) for name in ids]
    block = BlockData(np.concatenate(parts).astype(np.uint16), np.arange(len(ids)) * tokens)
    return Texts(ids, np.repeat(np.arange(len(ids)), tokens), events(block, 0), 50)


def test_arms_share_the_documents_that_both_have() -> None:
    names = [str(number) for number in range(400)]
    whole, arm = made(names), made(names[:350])
    tokens = 40 * 175

    def counted(texts: Texts, number: int) -> set[str]:
        return {texts.ids[place] for place in np.unique(texts.of[half(texts, number, tokens)])}

    for number in range(3):
        ours, theirs = counted(whole, number), counted(arm, number)
        assert len(ours) == len(theirs) == 175
        assert len(ours & theirs) >= 175 * 0.8  # those of the first half that the arm has
    assert counted(whole, 0) != counted(whole, 1)


def test_halves_deviate_as_other_samples_do() -> None:
    """The deviation over halves of one sample is that over samples of the same size, for the mean of what documents hold."""
    random = np.random.default_rng(0)
    samples, halves = [], []
    for _ in range(30):
        names = [str(one) for one in random.choice(10**6, 200, replace=False)]
        texts = made(names, 5)
        mark = texts.events.token == 7
        samples.append(mark.mean())
        each = [mark[half(texts, number, 5 * 100)].mean() for number in range(20)]
        halves.append(np.var(each, ddof=1))
    assert np.sqrt(np.mean(halves)) == pytest.approx(np.std(samples, ddof=1), rel=0.3)


def test_trigrams_of_the_same_text_predict_it_better() -> None:
    texts = made([str(number) for number in range(60)])
    held = HeldOut(made(["3", "1000"]), np.array([80.0, 80.0]), ["a", "a"])
    seen, unseen = bits(texts, held, 0, 10**9) / held.bytes
    assert seen < 0.7 * unseen
    assert unseen == pytest.approx(40 * np.log2(50) / 80, rel=0.2)


def test_text_of_the_user_s_own_judges_instead(tmp_path: Path) -> None:
    """A clean source that a stage removes is missed by text like it, and by no other."""
    file = tmp_path / "recipe.yaml"
    case, own = withheld(tmp_path)
    file.write_text(yaml.safe_dump(case))
    words = "ablate", str(file), str(tmp_path / "out"), "--without", "unmarked"
    found = Ablation.model_validate_json(command(*words, "--held-out", f"news={own}", "--json"))
    arm = found.arms[2]
    assert {name: one.own for name, one in found.held_out.items()} == {"clean": False, "news": True}
    assert (
        arm.difference == arm.differences["news"]
        and arm.difference.verdict == "better"
        and arm.difference.high < 0
    )
    assert arm.differences["clean"].value > arm.difference.value + 0.1
    assert arm.bits_per_byte == arm.by_set["news"] and set(arm.by_set) == {"clean", "news"}
    # What was named as held out is in no arm, though the arm without the stage has all other text of its kind.
    held = open_shards(str(tmp_path / "out/sets/shards"))
    texts = {tuple(ids) for ids in documents(held.train["news"]).values()}
    arms = open_shards(str(tmp_path / "out/arms/02/shards"))
    assert texts and "planted" in arms.train
    assert not texts & {tuple(ids) for source in arms.train.values() for ids in documents(source).values()}
    page = (tmp_path / "out/ablation.html").read_text()
    assert "By held-out text" in page and "<th>news</th>" in page


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("news", "--held-out news: must be NAME=FILES, such as news=held-out/news.jsonl"),
        ("clean=x.jsonl", "--held-out clean: a source of the recipe has this name; give the set another one"),
    ],
)
def test_a_set_that_cannot_be_is_one_line(tmp_path: Path, given: str, message: str) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text(yaml.safe_dump(withheld(tmp_path)[0]))
    with pytest.raises(UserError, match=re.escape(message)):
        command("ablate", str(file), str(tmp_path / "out"), "--without", "unmarked", "--held-out", given)


def withheld(folder: Path) -> tuple[dict[str, Any], Path]:
    """A recipe with books, and speeches that a stage removes; and speeches of which half are in the corpus too."""
    (folder / "planted_stages.py").write_text(STAGES)
    lines = gzip.decompress(SPEECHES.read_bytes()).decode().splitlines()
    speeches = [json.loads(line)["text"] for line in lines]
    parts = [text[at : at + 1500] for text in speeches for at in range(0, len(text) - 1500, 1500)][:500]
    own = folder / "own.jsonl"
    own.write_text("".join(json.dumps({"text": text}) + "\n" for text in parts[:80]))
    return recipe_of(folder / "case", {"clean": pieces(1500, 0, 500), "planted": parts[40:]}, "unmarked"), own
