"""Documents found in tars of texts, beside tokens and alone, and characters that a document does not have."""

# ruff: noqa: F811 (fixtures come by import, and arguments have their names)
from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from corpusmill.__main__ import build
from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.document_hash import purpose_seed
from corpusmill.pipeline.inspect.lineage.find import Found
from corpusmill.pipeline.inspect.lineage.shards import Requests, Shards
from corpusmill.pipeline.inspect.lineage.show import found_in_words
from corpusmill.pipeline.inspect.locate import TextList
from tests.command_line import CliRunner
from tests.faults.dedup import Main, main  # noqa: F401 (a fixture)
from tests.faults.shards import run, run_recipe, small  # noqa: F401 (fixtures)

SEED = purpose_seed(7, "shard")  # of the recipe


@pytest.fixture(scope="module")
def texts(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with shards of texts alone."""
    run = tmp_path_factory.mktemp("texts") / "run"
    run_recipe(small, run, "shard.format=text")
    return run


def found(document: str, run: Path, *options: str) -> dict[str, list[dict[str, str]]]:
    arguments = ["find", document, "--run", str(run), "--json", *options]
    result = CliRunner().invoke(build(), arguments, catch_exceptions=False)
    (one,) = json.loads(result.stdout)["documents"]
    assert isinstance(one, dict)
    return one


def cleaned(run: Path) -> dict[str, str]:
    """The texts that the shards were made of, by doc_id."""
    tables = [pq.read_table(file) for file in sorted((run / "dedup/documents").glob("*.parquet"))]
    pairs = [zip(t["doc_id"].to_pylist(), t["text"].to_pylist(), strict=True) for t in tables]
    return {doc_id.hex(): text for some in pairs for doc_id, text in some}


@pytest.mark.parametrize("kind", ["text", "both"])
def test_the_tar_and_the_member_of_a_text(small: Path, texts: Path, kind: str) -> None:
    run = texts if kind == "text" else small / "run"
    for doc_id, text in [*cleaned(run).items()][::7]:
        answer = found(doc_id, run)
        assert bool(answer["places"]) == (kind == "both")
        (place,) = answer["texts"]
        with tarfile.open(run / "shards" / place["tar"]) as tar:
            member = tar.extractfile(place["member"])
            assert member is not None and member.read().decode() == text
            assert tar.getnames()[2 * int(place["number"])] == place["member"]
    words = CliRunner().invoke(build(), ["find", doc_id, "--run", str(run)]).stdout
    assert f"{place['tar']}  sample {place['number']}, {doc_id}.txt" in words and "no tokens" not in words


def ids_of(tar: str) -> list[bytes]:
    with tarfile.open(tar) as members:
        return [bytes.fromhex(Path(name).stem) for name in members.getnames()[::2]]


@pytest.mark.parametrize("seed", [SEED, SEED + 1, None])
def test_every_text_is_found(small: Path, seed: int | None) -> None:
    """By the order of hashes in a few reads; with another seed perhaps not, then by all headers."""
    shards = Shards(Folder(small / "run/shards"))
    for entry in shards.index.texts:
        tars = shards.listed(entry)
        folder = (shards.folder / entry.index).parent
        ids = [doc_id for tar in tars for doc_id in ids_of(f"{folder}/{tar['url']}")]
        for at, doc_id in enumerate(ids):
            listed = TextList(folder, entry, requests := Requests(), seed, tars)
            by_order = list(listed.holding(doc_id))
            assert by_order == [at] or (seed != SEED and by_order == [])
            assert requests.count <= 4 * len(ids).bit_length() + 8
            assert list(listed.searched({doc_id})) == [(at, doc_id)] and listed.count == len(ids)
        absent = TextList(folder, entry, Requests(), seed, tars)
        assert list(absent.holding(bytes(16))) == list(absent.searched({bytes(16)})) == []


def test_without_a_run(small: Path, tmp_path: Path) -> None:
    shards = shutil.copytree(small / "run/shards", tmp_path / "shards")
    doc_id = next(iter(cleaned(small / "run")))
    assert found(doc_id, shards)["texts"] == found(doc_id, small / "run")["texts"]
    tar = next((shards / "web/train-text").glob("*.tar"))
    tar.write_bytes(b"x" * tar.stat().st_size)
    with pytest.raises(
        WorkError, match=rf"{tar.name}: byte 0: no document's header there; `corpusmill verify`"
    ):
        found("0f" * 16, shards)


@pytest.mark.parametrize("kind", ["text", "both"])
@pytest.mark.parametrize("option", ["--chars", "--ingested"])
def test_characters_that_a_document_does_not_have(
    small: Path, texts: Path, kind: str, option: str, main: Main
) -> None:
    run = texts if kind == "text" else small / "run"
    doc_id, text = next(iter(cleaned(run).items()))
    for asked in (str(len(text)), f"{len(text)}-{len(text) + 5}", "5000000-5000001"):
        code, error = main("find", doc_id, "--run", run, option, asked)
        answer = (
            f"{option} {asked}: {doc_id} has {len(text):,} characters; 0-{len(text) - 1} may be asked for"
        )
        assert code == 2 and error.splitlines()[-1] == f"error: {answer}", (
            error
        )  # behind what was made on the way
    answer = found(doc_id, run, option, f"{len(text) - 1}-{len(text) + 5}")  # the first of them is there
    assert bool(answer["places"]) == (kind == "both") and answer["texts"]


def test_why_there_are_no_tokens() -> None:
    for one, message in (
        (Found(bytes(16), None, [], length=1234), "no tokens   of these characters: it has 1,234"),
        (Found(bytes(16), None, [], cut=True), "no tokens   of these characters: they were cut"),
        (Found(bytes(16), None, []), "no tokens   no shard has any"),
        (Found(bytes(16), None, [], taken="2026"), "no tokens   taken out of the shards at 2026"),
    ):
        assert message in found_in_words(one)
