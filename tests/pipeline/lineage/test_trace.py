"""Tokens followed back where the tokenizer composes texts, and where pieces of the thread are missing."""

from __future__ import annotations

import json
import shutil
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from corpusmill import build
from pipeline.lineage.address import Address
from pipeline.lineage.find import Finder
from pipeline.lineage.show import as_json, in_words
from pipeline.lineage.trace import Tracer, open_shards, shards_of
from schemas.errors import UserError
from schemas.storage import Folder

RECIPE = """\
name: composed
output: {folder}/run
sources: {{notes: {{paths: [{folder}/notes.jsonl]}}}}
stages: [ingest, redact, split, tokenizer, shard]
split: {{validation_share: 0, min_documents: 0}}
tokenizer: {{vocab_size: 300, nfc: true}}
shard: {{block_tokens: 128}}
"""
TEXT = "Cafe\u0301 \u1112\u1161\u11ab\u1100\u116e\u11a8 na\u00efve o\u0323\u0302 at ann@site.org, A\u030angstrom \u212b {} plain words\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("composed")
    lines = [json.dumps({"id": f"n{i}", "text": TEXT.format(i) * 3}) for i in range(6)]
    (folder / "notes.jsonl").write_text("\n".join(lines))
    (folder / "r.yaml").write_text(RECIPE.format(folder=folder))
    arguments = ["run", str(folder / "r.yaml"), "--workers", "0", "-q"]
    assert CliRunner().invoke(build(), arguments, catch_exceptions=False).exit_code == 0
    return folder / "run"


def every_token(run: Path, tracer: Tracer) -> list[dict[str, Any]]:
    index = json.loads((run / "shards/notes/train/index.json").read_bytes())
    found = []
    for number, block in enumerate(index["shardlist"][0]["blocks"]):
        for at in range(block["ntokens"]):
            (traced,) = tracer.trace(Address("notes-train-000000", str(number), at, at))
            assert in_words(traced, lambda row: str(row["doc_id"])).count("\n") >= 3
            found.append(as_json(traced))
    return found


def test_a_tokenizer_that_composes(run: Path) -> None:
    """Its characters are counted in the composed text; what was composed is traced to what it was made of."""
    shards, places = shards_of(str(run), lambda line: None)
    texts = {f"n{i}": TEXT.format(i) * 3 for i in range(6)}
    composed = b""
    kinds: set[str] = set()
    for said in every_token(run, Tracer(shards, places)):
        composed += bytes.fromhex(said["tokens"][0]["bytes"])
        raw = texts[said["source_id"]]
        for piece in said["pieces"]:
            old = raw[piece["ingested_start"] : piece["ingested_end"]]
            new = said["cleaned"]["text"][piece["start"] - said["cleaned"]["start"] :][
                : piece["end"] - piece["start"]
            ]
            if piece["same"]:
                assert old == new
            else:
                kinds |= {kind for edit in piece["written_by"] for kind in edit["kinds"]}
                assert piece["written_by"][0]["stage"] == "redact" or new in unicodedata.normalize("NFC", old)
        assert said["raw"]["state"] == "equal" and bool(said["raw"]["spans"]) == bool(said["pieces"])
    assert kinds == {"nfc", "email"}
    wanted = "".join(
        unicodedata.normalize("NFC", text).replace("ann@site.org", "<EMAIL>") for text in texts.values()
    )
    assert sorted(composed.decode()) == sorted(wanted)


def test_where_the_thread_ends(run: Path, tmp_path: Path) -> None:
    """Without a stage's documents the offsets are told all the same; without the ledger, or another run's, nothing is guessed."""
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    address = Address("notes-train-000000", "0", 5, 9)
    for folder in ("redact", "ingest"):
        shutil.rmtree(copy / folder / "documents")
    shards, places = shards_of(str(copy), lambda line: None)
    (traced,) = Tracer(shards, places).trace(address)
    said = as_json(traced)
    assert said["pieces"] and "text" not in said["cleaned"] and said["raw"]["state"] == "unchecked"
    assert said["raw"]["spans"]
    notes = run.parent / "notes.jsonl"
    before = notes.read_bytes()
    notes.write_bytes(before.replace(b"plain", b"longer"))
    (traced,) = Tracer(shards, places).trace(address)
    notes.write_bytes(before)
    assert as_json(traced)["raw"]["state"] == "differs"

    shutil.rmtree(copy / "ledger")
    shards, places = shards_of(str(copy), lambda line: None)
    with pytest.raises(UserError, match="no ledger there"):
        list(Tracer(shards, places).trace(address))
    with pytest.raises(UserError, match="which run"):
        open_shards(address, None, lambda line: None)


def test_a_run_on_an_object_store(run: Path, s3: str) -> None:
    """The same answers from there, by ranges; the index of ids is written beside it, once."""
    for file in sorted(run.rglob("*")):
        if file.is_file() and "lineage" not in file.parts:
            (Folder(s3) / f"run/{file.relative_to(run)}").write(file.read_bytes())
    there, said = f"{s3}/run", list[str]()
    answers = []
    for url in (str(run), there):
        shards, places = shards_of(url, said.append)
        traced = Tracer(shards, places).trace(Address("notes-train-000000", "1", 7, 90))
        (found,) = Finder(shards, places).find("n3")
        values = [as_json(one) for one in traced]
        assert {one.pop("run") for one in values} == {url}
        answers.append((values, found.places))
    assert answers[0] == answers[1] and answers[1][1][0].start == 0
    tar = f"{there}/shards/notes/train/notes-train-000000.tar"
    address = Address(tar, "1", 7, 7)
    shards, places = open_shards(address, None, said.append)
    assert places is not None and places.url == there
    (one,) = Tracer(shards, places).trace(address)
    assert as_json(one)["doc_id"] == answers[1][0][0]["doc_id"]
    assert sum(there in line for line in said) == 1, "made once"
