"""Tokens followed back where the tokenizer composes texts, and where pieces of the thread are missing."""

from __future__ import annotations

import json
import shutil
import unicodedata
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from corpusmill.__main__ import build
from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.inspect.lineage.find import Finder
from corpusmill.pipeline.inspect.lineage.run import RunPlaces
from corpusmill.pipeline.inspect.lineage.shards import Address
from corpusmill.pipeline.inspect.lineage.show import as_json, in_words
from corpusmill.pipeline.inspect.lineage.trace import Followed, Tracer, open_shards, shards_of
from tests.command_line import CliRunner

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
    command("run", folder / "r.yaml", "--workers", "0", "-q")
    return folder / "run"


def command(*arguments: str | Path) -> str:
    """What a command prints on stdout; on stderr `trace` and `find` print the number of reads."""
    result = CliRunner().invoke(build(), [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert arguments[0] not in ("trace", "find") or " reads" in result.stderr
    return result.stdout


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
    for answer in every_token(run, Tracer(shards, places)):
        composed += bytes.fromhex(answer["tokens"][0]["bytes"])
        raw = texts[answer["source_id"]]
        for piece in answer["pieces"]:
            old = raw[piece["ingested_start"] : piece["ingested_end"]]
            new = answer["cleaned"]["text"][piece["start"] - answer["cleaned"]["start"] :][
                : piece["end"] - piece["start"]
            ]
            if piece["same"]:
                assert old == new
            else:
                kinds |= {kind for edit in piece["written_by"] for kind in edit["kinds"]}
                assert piece["written_by"][0]["stage"] == "redact" or new in unicodedata.normalize("NFC", old)
        assert answer["raw"]["state"] == "equal" and bool(answer["raw"]["spans"]) == bool(answer["pieces"])
    assert kinds == {"nfc", "email"}
    wanted = "".join(
        unicodedata.normalize("NFC", text).replace("ann@site.org", "<EMAIL>") for text in texts.values()
    )
    assert sorted(composed.decode()) == sorted(wanted)


def test_one_bad_address_hides_no_other(run: Path, tmp_path: Path) -> None:
    """The good ones are answered, in their order; then each mistake has its line. A damaged block alone is exit code 1."""
    good = [f"notes-train-000000:0:{at}" for at in (3, 7)]
    bad = ["notes-train-000000:-1:0", "notes-train-000009:0:0", "nonsense"]
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    tar = copy / "shards/notes/train/notes-train-000000.tar"
    whole = tar.read_bytes()
    end = json.loads((tar.parent / "index.json").read_bytes())["shardlist"][0]["blocks"][-1]
    flipped = end["offset"] + end["size"] - 1
    tar.write_bytes(whole[:flipped] + bytes([whole[flipped] ^ 1]) + whole[flipped + 1 :])
    damaged = f"{end['key'].rpartition('-')[0]}:{end['key']}:0"
    for wrong, code in ((bad, 2), ([damaged], 1), ([damaged, *bad], 2)):
        arguments = ["trace", good[0], *wrong, good[1], "--run", str(copy)]
        result = CliRunner().invoke(build(), [*arguments, "--json"])
        assert [one["address"] for one in json.loads(result.stdout)] == good
        words = CliRunner().invoke(build(), arguments)
        assert [line for line in words.stdout.splitlines() if not line.startswith(" ")] == good
        assert isinstance(words.exception, UserError | WorkError) and words.exception.exit_code == code
        assert len(str(words.exception).splitlines()) == len(wrong)
    nothing = CliRunner().invoke(build(), ["trace", "x", *bad[1:], "x", "--run", str(copy), "--json"])
    assert nothing.stdout == "" and str(nothing.exception).count("x: not an address") == 1


def test_where_the_thread_ends(run: Path, tmp_path: Path) -> None:
    """Without a stage's documents the offsets are still reported; without the ledger, or with another run's, nothing is guessed."""
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    address = Address("notes-train-000000", "0", 5, 9)
    for folder in ("redact", "ingest"):
        shutil.rmtree(copy / folder / "documents")
    shards, places = shards_of(str(copy), lambda line: None)
    (traced,) = Tracer(shards, places).trace(address)
    answer = as_json(traced)
    assert answer["pieces"] and "text" not in answer["cleaned"] and answer["raw"]["state"] == "unchecked"
    assert answer["raw"]["spans"]
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


@pytest.mark.parametrize("stage", ["redact", "ingest"])
def test_another_run_in_place_of_the_one_before(run: Path, tmp_path: Path, stage: str) -> None:
    """Shards of the documents of a run's stage lead to it as long as it left the same texts, and is there."""
    made, again = tmp_path / "made", tmp_path / "again"
    shutil.copytree(run, made)
    tokenizer = str(run / "shards/tokenizer.json")
    command("shard", made / stage / "documents", again, "--tokenizer", tokenizer, "--workers", "0", "-q")
    address = Address(str(next(again.rglob("*.tar"))), "0", 5, 5)

    def followed() -> Followed:
        (traced,) = Tracer(*open_shards(address, None, lambda line: None)).trace(address)
        return traced.document

    whole = followed()
    assert [hop.run.url for hop in whole.hops] == [str(again), str(made)] and not whole.end
    edited = [edits.stage for edits in whole.chain if edits.edits]
    assert edited == (["redact", "tokenizer"] if stage == "redact" else ["tokenizer"])
    assert whole.raw is not None and whole.raw.state == "equal"
    file = next((made / stage / "documents").glob("*.parquet"))
    docs = pq.read_table(file)
    hashes = docs["text_hash"].take(list(range(len(docs)))[::-1])
    pq.write_table(docs.set_column(docs.column_names.index("text_hash"), "text_hash", hashes), file)
    for _ in range(2):  # another text, then nothing
        ended = followed()
        assert [hop.run.url for hop in ended.hops] == [str(again)] and ended.raw is None
        assert ended.end == f"{again} read document partitions, and the run that made them is not there"
        shutil.rmtree(made, ignore_errors=True)


def test_shards_of_another_run(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunPlaces, "row", lambda *_: None)
    (traced,) = Tracer(*shards_of(str(run), lambda line: None)).trace(
        Address("notes-train-000000", "0", 5, 5)
    )
    assert "has no such document: the shards are of another run" in as_json(traced)["lineage_ends"]


def test_a_tar_whose_set_is_not_around_it(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run / "shards/notes/train", tmp_path / "alone")
    with pytest.raises(UserError, match="no shard set around that tar"):
        open_shards(Address(f"{tmp_path}/alone/notes-train-000000.tar", "0", 5, 5), None, lambda line: None)


def test_several_addresses(run: Path) -> None:
    """A stem and a path, in their order; a range of several documents gives an answer for each."""
    tar = run / "shards/notes/train/notes-train-000000.tar"
    with_run = json.loads(
        command("trace", "notes-train-000000:1:3", f"{tar}:0:0-127", "--run", run, "--json")
    )
    by_path = json.loads(command("trace", f"{tar}:1:3", f"{tar}:0:0-127", "--json"))
    assert [one["block"] for one in with_run] == [one["block"] for one in by_path]
    assert len({one["block"] for one in by_path[1:]}) == 1 and by_path[0]["block"] != by_path[1]["block"]
    assert sum(len(one["tokens"]) for one in by_path[1:]) == 128
    assert len({one["doc_id"] for one in by_path[1:]}) == len(by_path) - 1


def test_characters_of_one_text_or_the_other(run: Path) -> None:
    with pytest.raises(UserError, match="--chars and --ingested: give one of them"):
        command("find", "n3", "--run", run, "--chars", "0-1", "--ingested", "0-1")


def test_a_run_on_an_object_store(run: Path, s3: str) -> None:
    """The same answers from there, by ranges; the index of ids is written beside it, once."""
    for file in sorted(run.rglob("*")):
        if file.is_file() and "lineage" not in file.parts:
            (Folder(s3) / f"run/{file.relative_to(run)}").write(file.read_bytes())
    there, logged = f"{s3}/run", list[str]()
    answers = []
    for url in (str(run), there):
        shards, places = shards_of(url, logged.append)
        traced = Tracer(shards, places).trace(Address("notes-train-000000", "1", 7, 90))
        (found,) = Finder(shards, places).find("n3")
        values = [as_json(one) for one in traced]
        assert {one.pop("run") for one in values} == {url}
        answers.append((values, found.places))
    assert answers[0] == answers[1] and answers[1][1][0].start == 0
    tar = f"{there}/shards/notes/train/notes-train-000000.tar"
    address = Address(tar, "1", 7, 7)
    shards, places = open_shards(address, None, logged.append)
    assert places is not None and places.url == there
    (one,) = Tracer(shards, places).trace(address)
    assert as_json(one)["doc_id"] == answers[1][0][0]["doc_id"]
    assert sum(there in line for line in logged) == 1, "made once"
