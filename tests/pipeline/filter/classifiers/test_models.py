"""Models: shipped and foreign, found, checked, cached, loaded; scores and windows."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.filter.classifiers import fasttext_model, scores
from pipeline.filter.classifiers.fasttext_model import MODELS
from schemas.errors import UserError, WorkError
from schemas.storage import Folder
from tests.pipeline.filter.helpers import PROSE

LID_SHA256 = "8f3472cfe8738a7b6099e8e999c3cbfae0dcd15696aac7d7738a8039db603e83"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(fasttext_model.CACHE_ENV, str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


def shipped(name: str):  # type: ignore[no-untyped-def]
    file = fasttext_model.shipped(name)
    return fasttext_model.load(file.path, file.xxh3)


def test_shipped_models_are_those_of_the_list_and_small() -> None:
    known = json.loads((MODELS / "models.json").read_text())
    assert known.keys() == {"lid.176.ftz", "toxicity.ftz", "quality.ftz"}
    for name, entry in known.items():
        binary = (MODELS / name).read_bytes()
        assert len(binary) == entry["bytes"] < 1_500_000
        assert hashlib.sha256(binary).hexdigest() == entry["sha256"]
        assert fasttext_model.shipped(name).xxh3 == entry["xxh3"]
    assert known["lid.176.ftz"]["sha256"] == LID_SHA256
    assert "CC BY-SA 3.0" in (MODELS / "LICENSE-lid176").read_text()


@pytest.mark.parametrize("name", ["toxicity", "quality"])
def test_each_card_is_of_the_model_beside_it(name: str) -> None:
    card = (MODELS / f"{name}.md").read_text()
    assert fasttext_model.shipped(f"{name}.ftz").xxh3 in card
    for part in (
        "Data it was trained on",
        "licence",
        "AUC",
        "On sets it has never seen",
        "What it cannot do",
    ):
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
        fasttext_model.load(found.path, found.xxh3)


def test_what_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "m.bin").write_bytes(b"no model at all")
    found = fasttext_model.find(str(tmp_path / "m.bin"))
    with pytest.raises(UserError, match="not a fastText model"):
        fasttext_model.load(found.path, found.xxh3)
    with pytest.raises(UserError, match="no such file"):
        fasttext_model.find(str(tmp_path / "absent.bin"))


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
    place.write((MODELS / "toxicity.ftz").read_bytes())
    assert fasttext_model.find(place.url).xxh3 != first.xxh3


def test_languages() -> None:
    texts = {
        "en": PROSE,
        "de": "Der Fluss entspringt in den Bergen und fließt durch ein weites Tal.",
        "fr": "La rivière prend sa source dans les collines au nord de la ville.",
        "ru": "Река берёт начало в холмах к северу от города.",
        "ar": "ينبع النهر من التلال الواقعة شمال المدينة",
        "zh": "这条河发源于城市北部的山丘，流经宽阔的山谷。",
        "hi": "नदी शहर के उत्तर में पहाड़ियों से निकलती है।",
    }
    codes, sure = scores.languages(pa.array(texts.values(), pa.large_string()), shipped("lid.176.ftz"))
    assert codes == list(texts) and (sure > 0.6).all()


def test_the_language_is_read_off_the_start_with_line_feeds_as_spaces() -> None:
    model = shipped("lid.176.ftz")
    german = " Der Fluss entspringt in den Bergen und fließt durch ein weites Tal." * 50
    long = PROSE + PROSE + PROSE + PROSE + PROSE
    assert len(long) > scores.LANGUAGE_CHARS
    lines = [long, long + german, PROSE.replace("\n", " "), PROSE, "", " \n\t"]
    codes, sure = scores.languages(pa.array(lines, pa.large_string()), model)
    assert codes == ["en"] * 4 + [None, None]
    assert sure[0] == sure[1] and sure[2] == sure[3] and sure[4] == sure[5] == 0


@given(st.lists(st.text(max_size=100) | st.text(alphabet="ab \n", min_size=300, max_size=2000), max_size=5))
def test_windows_hold_the_words_in_order(texts: list[str]) -> None:
    clean, offsets = scores.windows(texts)
    assert len(offsets) == len(texts) + 1 and offsets[0] == 0 and offsets[-1] == len(clean)
    for row, text in enumerate(texts):
        own = clean[offsets[row] : offsets[row + 1]].to_pylist()
        whole = scores.normalised(pa.array([text], pa.string()))[0].as_py()
        assert all(own) and len(" ".join(own).replace(" ", "")) == len(whole.replace(" ", ""))
        assert all(len(window) <= scores.WINDOW_CHARS + 45 for window in own if text.isascii())


def test_long_text_is_sampled_from_end_to_end() -> None:
    words = [f"word{i}" for i in range(20_000)]
    clean, offsets = scores.windows([" ".join(words)])
    assert len(clean) == scores.MAX_WINDOWS == offsets[1]
    found = [word for window in clean.to_pylist() for word in window.split()]
    assert set(found) <= set(words)  # no word is cut
    places = [int(word[4:]) for word in found]
    assert places == sorted(places) and places[0] == 0 and places[-1] > 19_000


def test_normalising() -> None:
    text = pa.array(["See HTTPS://x.org/a?b @You &amp; don't 'quoted' '' STOP—été é!", "…", "''"])
    assert scores.normalised(text).to_pylist() == ["see don't quoted stop été é", "", ""]


def test_pooling() -> None:
    found = np.array([0.9, 0.1, 0.2, *[0.5] * 9, 1.0, 0.0])
    offsets = np.array([0, 1, 1, 3, 14])
    assert scores.mean_scores(found, offsets).tolist() == pytest.approx([0.9, 0, 0.15, 5.5 / 11])
    # The worst tenth of 11 windows is two of them.
    assert scores.worst_scores(found, offsets).tolist() == pytest.approx([0.9, 0, 0.2, 0.75])


@pytest.mark.parametrize("name", ["toxicity", "quality"])
def test_scores_are_probabilities_even_without_a_known_word(name: str) -> None:
    model = shipped(f"{name}.ftz")
    label = fasttext_model.shipped(f"{name}.ftz").label
    assert label in fasttext_model.labels(model)
    found = scores.window_scores(pa.array(["xqzzy", "the river", "", "__label__toxic"]), model, str(label))
    assert ((found >= 0) & (found <= 1)).all()


def test_one_villain_does_not_condemn_a_book() -> None:
    model = shipped("toxicity.ftz")
    abuse = " you stupid fucking bitch, shut the fuck up "
    book = PROSE * 60
    clean, offsets = scores.windows([book, book[:9000] + abuse + book[9000:], abuse])
    found = scores.worst_scores(scores.window_scores(clean, model, "toxic"), offsets)
    assert found[0] < 0.5 and found[1] < 0.5 < 0.95 < found[2]


def test_real_reference_prose_is_not_toxic(data_dir: Path) -> None:
    from pipeline.filter.models import sources

    model = shipped("toxicity.ftz")
    texts = sources.encyclopedia(data_dir) + sources.medical_abstracts(data_dir)[:300]
    clean, offsets = scores.windows(texts)
    found = scores.worst_scores(scores.window_scores(clean, model, "toxic"), offsets)
    assert len(texts) > 350 and (found > 0.95).mean() <= 0.005
