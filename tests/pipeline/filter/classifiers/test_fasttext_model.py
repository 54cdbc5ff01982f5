"""Models: shipped and foreign, found, checked, cached, loaded."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.filter.classifiers import fasttext_model, predictor
from corpusmill.pipeline.filter.classifiers.fasttext_model import MODELS

LID_SHA256 = "8f3472cfe8738a7b6099e8e999c3cbfae0dcd15696aac7d7738a8039db603e83"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(fasttext_model.CACHE_ENV, str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


def test_shipped_models_are_those_of_the_list_and_small() -> None:
    known = json.loads((MODELS / "models.json").read_text())
    names = {"language.ftz", "lid.176.ftz", "toxicity.safetensors", "quality.ftz", "quality_signals.json"}
    assert known.keys() == names
    limits = {"language.ftz": 10_000_000, "toxicity.safetensors": 4_000_000}
    for name, entry in known.items():
        binary = (MODELS / name).read_bytes()
        assert len(binary) == entry["bytes"] < limits.get(name, 1_500_000)
        assert hashlib.sha256(binary).hexdigest() == entry["sha256"]
        assert fasttext_model.shipped(name).xxh3 == entry["xxh3"]
    assert known["lid.176.ftz"]["sha256"] == LID_SHA256
    assert "CC BY-SA 3.0" in (MODELS / "LICENSE-lid176").read_text()


def test_the_card_and_the_profile_of_the_language_model() -> None:
    file = fasttext_model.shipped("language.ftz")
    card = (MODELS / "language.md").read_text(encoding="utf-8")
    assert file.xxh3 in card and file.profile is not None and file.key != file.xxh3
    for part in (
        "Data it was trained on",
        "licence",
        "On sets that it has never seen",
        "By language",
        "What it cannot do",
    ):
        assert part in card
    assert fasttext_model.shipped("lid.176.ftz").key == fasttext_model.shipped("lid.176.ftz").xxh3


@pytest.mark.parametrize(
    ("file", "unseen"),
    [
        ("toxicity.safetensors", "Judged on each set by a model without it"),
        ("quality.ftz", "On sets it has never seen"),
    ],
)
def test_each_card_is_of_the_model_beside_it(file: str, unseen: str) -> None:
    card = (MODELS / file).with_suffix(".md").read_text()
    assert fasttext_model.shipped(file).xxh3 in card
    for part in ("## Data", "CC", "AUC", unseen, "What it cannot do"):
        assert part in card


def test_a_damaged_or_missing_shipped_model_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fasttext_model, "MODELS", tmp_path)
    shutil.copy(MODELS / "models.json", tmp_path)
    with pytest.raises(WorkError, match=r"quality\.ftz: the shipped model is missing"):
        fasttext_model.shipped("quality.ftz")
    binary = bytearray((MODELS / "quality.ftz").read_bytes())
    binary[1000] ^= 1
    (tmp_path / "quality.ftz").write_bytes(binary)
    with pytest.raises(WorkError, match="the shipped model is damaged"):
        fasttext_model.shipped("quality.ftz")


def test_a_model_that_changed_since_it_was_found_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "m.ftz"
    shutil.copy(MODELS / "quality.ftz", path)
    found = fasttext_model.find(str(path))
    path.write_bytes(b"other")
    with pytest.raises(WorkError, match="changed while the run was using it"):
        predictor.load(found.path, found.xxh3)


def test_what_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "m.bin").write_bytes(b"no model at all")
    found = fasttext_model.find(str(tmp_path / "m.bin"))
    with pytest.raises(UserError, match="not a fastText model"):
        predictor.load(found.path, found.xxh3)
    with pytest.raises(UserError, match="no such file"):
        fasttext_model.find(str(tmp_path / "absent.bin"))


def test_a_model_that_cannot_be_read_is_a_user_error() -> None:
    for model in ("/proc/self/mem", "/proc/self/mem#sha256=00"):  # there, and no byte of it can be read
        with pytest.raises(UserError, match="model /proc/self/mem: cannot be read: "):
            fasttext_model.find(model)


def test_checksum_in_the_address() -> None:
    path = MODELS / "lid.176.ftz"
    assert fasttext_model.find(f"{path}#sha256={LID_SHA256}").path == str(path)
    with pytest.raises(UserError, match="not the model you named"):
        fasttext_model.find(f"{path}#sha256={'0' * 64}")
    with pytest.raises(UserError, match="allowed: #sha256"):
        fasttext_model.find(f"{path}#md5=0")


def test_a_remote_model_is_fetched_once_and_again_when_damaged(cache: Path) -> None:
    place = Folder("memory://models/a.ftz")
    binary = (MODELS / "quality.ftz").read_bytes()
    place.write(binary)
    first = fasttext_model.find(place.url)
    assert Path(first.path).parent == cache and Path(first.path).read_bytes() == binary
    before = Path(first.path).stat().st_mtime_ns
    assert fasttext_model.find(place.url) == first and Path(first.path).stat().st_mtime_ns == before
    Path(first.path).write_bytes(b"cut")
    assert fasttext_model.find(place.url) == first and Path(first.path).read_bytes() == binary
    place.write((MODELS / "toxicity.safetensors").read_bytes())
    assert fasttext_model.find(place.url).xxh3 != first.xxh3
