"""Random tokens of a whole run, followed to their source: every position, and every byte of it, is what it should be."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest

from corpusmill.__main__ import build
from corpusmill.pipeline.inspect.lineage.find import Finder
from corpusmill.pipeline.inspect.lineage.shards import Address
from corpusmill.pipeline.inspect.lineage.show import as_json
from corpusmill.pipeline.inspect.lineage.trace import Tracer, shards_of
from tests.command_line import CliRunner
from tests.conftest import shared
from tests.e2e.cli import EXAMPLES, corpusmill
from tests.pipeline.inspect.lineage.source import text_at

KEY = {"CORPUSMILL_REDACT_KEY": "a key for these tests only"}
# Every way of editing is on: lines cut by rules, repeated lines and runs of words, tags and pseudonyms.
RECIPE = """\
name: traced
output: {output}
seed: 7
sources:
{sources}
ingest: {{partition_mb: {partition_mb}}}
filter:
  language: {{keep: [en]}}
  cut_lines: true
  skip_sources:
    code: [gopher_repetition, gopher_quality, c4, fineweb, language, toxicity, quality]
    qa: [c4, fineweb]
dedup:
  lines: {{unit: line}}
  substrings: {{min_tokens: 50}}
redact: {{replacements: {{email: pseudonym}}}}
split: {{validation_share: 0.05, min_documents: 2}}
tokenizer: {{vocab_size: 1024, sample_mb: 1}}
shard: {{block_tokens: 4096, shard_mb: 0.2}}
stages: [ingest, filter, dedup, redact, split, tokenizer, shard]
"""
COLUMNS = {"code": "content"}


def sources_yaml(places: dict[str, Path]) -> str:
    lines = []
    for name, place in places.items():
        more = ", text_column: content, id_column: path" if name == "code" else ""
        lines.append(f"  {name}: {{paths: [{place}]{more}}}")
    return "\n".join(lines)


def made(folder: Path, places: dict[str, Path], partition_mb: float = 0.25) -> Path:
    recipe = folder / "traced.yaml"
    text = RECIPE.format(output=folder / "run", sources=sources_yaml(places), partition_mb=partition_mb)
    recipe.write_text(text)
    corpusmill("run", recipe, "--workers", "0", env=KEY)
    return folder / "run"


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> Path:
    """The small corpus in every format whose bytes can be traced; some books with other line ends and encodings."""

    def make(folder: Path) -> None:
        books = Path(shutil.copytree(corpus / "books", folder / "books"))
        first, second, third = sorted(books.glob("*.txt"))[:3]
        first.write_bytes(b"\xef\xbb\xbf" + first.read_text().replace("\n", "\r\n").encode())
        second.write_bytes(second.read_text().replace("’", "'").encode("cp1252", "replace"))
        third.write_bytes(third.read_text().encode("utf-16"))
        made(folder, {
            "books": books, "speeches": corpus / "speeches.jsonl.gz", "qa": corpus / "faq.jsonl.zst",
            "docs": corpus / "docs.warc.gz", "planted": corpus / "planted", "code": EXAMPLES / "code/stdlib.parquet",
        })  # fmt: skip

    return shared(tmp_path_factory, "traced", make) / "run"


def printed_by(*arguments: str | Path) -> Any:
    """What a command answers, run in this process; `corpusmill` starts one of its own."""
    result = CliRunner().invoke(build(), [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


def texts_of(run: Path, stage: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for file in sorted((run / stage / "documents").glob("*.parquet")):
        table = pq.read_table(file, columns=["doc_id", "text"])
        found |= {
            i.hex(): t for i, t in zip(table["doc_id"].to_pylist(), table["text"].to_pylist(), strict=True)
        }
    return found


def addresses(run: Path, count: int, seed: int) -> list[Address]:
    """Random tokens of a run's shards."""
    return addresses_of(run / "shards", count, seed)


def addresses_of(shards: Path, count: int, seed: int) -> list[Address]:
    """Random tokens, all equally likely, those of a block together."""
    blocks = []
    for entry in orjson.loads((shards / "index.json").read_bytes())["sets"]:
        file = shards / entry["index"]
        for shard in orjson.loads(file.read_bytes())["shardlist"]:
            stem = shard["url"].removesuffix(".tar")
            blocks += [(stem, str(n), block["ntokens"]) for n, block in enumerate(shard["blocks"])]
    draw = random.Random(seed)
    chosen = draw.choices(blocks, [tokens for *_, tokens in blocks], k=count)
    return sorted(Address(stem, block, at := draw.randrange(tokens), at) for stem, block, tokens in chosen)


def check(answer: dict[str, Any], cleaned: dict[str, str], ingested: dict[str, str]) -> Counter[str]:
    """Check everything reported on one token; returns what was seen."""
    seen = Counter(tokens=1)
    doc_id, (token,) = answer["doc_id"], answer["tokens"]
    whole = answer["cleaned"]
    assert whole["text"] == cleaned[doc_id][whole["start"] : whole["end"]]
    if answer["end_of_document"]:
        assert whole["start"] == whole["end"] == len(cleaned[doc_id]) and token["bytes"] == ""
        return seen + Counter(ends=1)
    part = bytes.fromhex(token["bytes"])
    try:
        assert part.decode() == whole["text"]
    except UnicodeDecodeError:
        seen["parts of characters"] += 1
        assert part in whole["text"].encode()
    assert [whole["start"], *(p["end"] for p in answer["pieces"])] == [
        *(p["start"] for p in answer["pieces"]),
        whole["end"],
    ]
    raw = answer["raw"]
    assert raw["state"] == "equal", (answer["locator"], raw)
    wanted = ""
    for piece in answer["pieces"]:
        old = ingested[doc_id][piece["ingested_start"] : piece["ingested_end"]]
        new = cleaned[doc_id][piece["start"] : piece["end"]]
        if piece["same"]:
            assert old == new
            wanted += new
            continue
        seen["replaced"] += 1
        edit = piece["written_by"][0]
        assert edit["stage"] == "redact" and "stands_for" not in piece
        assert any(
            e["stage"] == "redact" and e["length"] == edit["length"] for e in answer["decisions"][0]["edits"]
        )
        assert old not in cleaned[doc_id] or len(old) < 8
    if raw["format"] in ("warc", "mediawiki"):
        assert raw["spans"] == [] and raw["note"]
        seen[f"extracted: {raw['format']}"] += 1
    else:
        assert raw["spans"]
        exact = [span for span in raw["spans"] if span["exact"]]
        if len(exact) == len(raw["spans"]):
            text = "".join(text_at(raw, span, COLUMNS.get(answer["source"], "text")) for span in exact)
            assert text == wanted
            seen[f"bytes: {raw['format']}"] += 1
        else:
            seen["mended or replaced"] += 1
    if any(stage["edits_before"] for stage in answer["stages"]):
        seen["after edits"] += 1
    if len(answer["pieces"]) > 1:
        seen["across an edit"] += 1
    return seen


def trace_all(run: Path, wanted: list[Address]) -> Counter[str]:
    shards, places = shards_of(str(run), lambda line: None)
    tracer, seen = Tracer(shards, places), Counter[str]()
    cleaned, ingested = texts_of(run, "redact"), texts_of(run, "ingest")
    for address in wanted:
        (traced,) = tracer.trace(address)
        seen += check(json.loads(orjson.dumps(as_json(traced))), cleaned, ingested)
    return seen


def test_random_tokens_are_what_their_source_has(run: Path) -> None:
    wanted = addresses(run, 500, 1)
    seen = trace_all(run, wanted)
    assert seen["tokens"] == 500
    assert min(seen[f"bytes: {kind}"] for kind in ("text", "jsonl", "parquet")) > 5
    assert seen["after edits"] > 20 and seen["extracted: warc"] > 5


def test_every_token_of_what_redact_wrote(run: Path) -> None:
    """Tags and pseudonyms: each of their tokens is traced to the whole of what it stands for, found by its characters."""
    shards, places = shards_of(str(run), lambda line: None)
    assert places is not None
    finder, wanted, kinds = Finder(shards, places), [], Counter[str]()
    for file in sorted((run / "ledger").glob("*.parquet")):
        for values in pq.read_table(file, columns=["doc_id", "outcome", "edits"]).to_pylist():
            if values["outcome"] != "kept" or not values["edits"]:
                continue
            row = places.row(values["doc_id"])
            assert row is not None
            for edit in places.edits(row)[-1].edits[:3]:
                (found,) = finder.find(values["doc_id"].hex(), (edit.place, edit.place + edit.written))
                for place in found.places:
                    stem = Path(place.tar).stem
                    wanted += [
                        Address(stem, str(place.block), at, at) for at in range(place.first, place.last + 1)
                    ]
                kinds.update(edit.kinds)
    seen = trace_all(run, wanted)
    assert seen["replaced"] == len(wanted) > 50 and kinds["email"] and kinds["phone"]


@pytest.mark.slow
def test_a_thousand_tokens_of_the_example_corpus(tmp_path: Path) -> None:
    names = ("wiki", "books", "speeches", "docs", "qa", "code", "planted")
    run = made(tmp_path, {name: EXAMPLES / name for name in names}, partition_mb=2)
    seen = trace_all(run, addresses(run, 1000, 2))
    print(dict(seen))
    assert seen["tokens"] == 1000 and seen["extracted: mediawiki"] > 20 and seen["after edits"] > 100


def test_commands(run: Path) -> None:
    (address,) = addresses(run, 1, 3)
    answer = json.loads(printed_by("trace", str(address), "--run", run, "--json").stdout)[0]
    found = json.loads(printed_by("find", answer["doc_id"], "--run", run, "--json").stdout)["documents"][0]
    places = [p for p in found["places"] if p["address"].startswith(f"{address.shard}:{address.block}:")]
    assert any(p["first"] <= address.first <= p["last"] for p in places)
    start, end = answer["cleaned"]["start"], answer["cleaned"]["end"]
    chars = printed_by("find", answer["locator"], "--run", run, "--chars", f"{start}-{end - 1}").stdout
    assert f"{address.shard}:{address.block}:{address.first}  " in chars
    tar = run / "shards" / places[0]["tar"]
    by_path = json.loads(printed_by("trace", f"{tar}:{address.block}:{address.first}", "--json").stdout)[0]
    assert {**by_path, "address": ""} == {**answer, "address": ""}
    words = corpusmill("trace", str(address), "--run", run)
    assert answer["doc_id"] in words.stdout and "kept        by every stage" in words.stdout
    assert "reads of the run" in words.stderr
    for wrong in (["trace", str(address)], ["find", "nobody", "--run", run]):
        result = corpusmill(*wrong, check=False)
        assert result.returncode == 2 and result.stderr.count("\n") == 1 and "Traceback" not in result.stderr


def test_what_was_redacted_is_shown_only_if_asked_for(run: Path) -> None:
    """A telephone number out of the planted corpus: in no output but that of --show-redacted."""
    for doc_id, text in texts_of(run, "redact").items():
        if "<PHONE>" not in text:
            continue
        start = text.index("<PHONE>")
        (found,) = json.loads(
            printed_by("find", doc_id, "--run", run, "--chars", f"{start - 20}-{start + 25}", "--json").stdout
        )["documents"]
        if len(found["places"]) == 1:  # not parted between two sequences
            break
    address = found["places"][0]["address"]
    edits = json.loads(printed_by("trace", address, "--run", run, "--json").stdout)[0]
    piece = next(piece for piece in edits["pieces"] if not piece["same"])
    number = texts_of(run, "ingest")[doc_id][piece["ingested_start"] : piece["ingested_end"]]
    assert sum(char.isdigit() for char in number) >= 7
    middle = f"{piece['ingested_start'] + 2}-{piece['ingested_start'] + 3}"
    (back,) = json.loads(printed_by("find", doc_id, "--run", run, "--ingested", middle, "--json").stdout)[
        "documents"
    ]
    first, last = back["places"][0], back["places"][-1]  # whole tokens
    assert start - 8 < first["start"] <= start < start + len("<PHONE>") <= last["end"] < start + 16
    for options, shown in (
        ([], False),
        (["--json"], False),
        (["--show-redacted"], True),
        (["--show-redacted", "--json"], True),
    ):
        result = printed_by("trace", address, "--run", run, *options)
        assert (number in result.stdout) == shown and number not in result.stderr
    words = printed_by("trace", address, "--run", run).stdout
    assert "inside what redact (phone) wrote" in words and "'<PHONE>'" in words


def test_stage_by_stage_and_shards_by_themselves(run: Path, corpus: Path, tmp_path: Path) -> None:
    """Shards of a run's documents lead through both runs; those of raw files to these; copied ones to the doc_id."""
    again, alone, copy = tmp_path / "again", tmp_path / "alone", tmp_path / "copy"
    options: list[str | Path] = [
        "--tokenizer",
        run / "shards/tokenizer.json",
        "--workers",
        "0",
        "-q",
        "--set",
        "shard.block_tokens=4096",
    ]
    printed_by("shard", run / "redact/documents", again, *options)
    seen = Counter[str]()
    shards, places = shards_of(str(again), lambda line: None)
    tracer = Tracer(shards, places)
    cleaned, ingested = texts_of(run, "redact"), texts_of(run, "ingest")
    for address in addresses_of(again, 60, 5):
        (traced,) = tracer.trace(address)
        assert [hop.run.url for hop in traced.document.hops] == [str(again), str(run)]
        answer = json.loads(orjson.dumps(as_json(traced)))
        answer["decisions"] = answer["decisions"][1:]
        answer["source"] = traced.document.hops[-1].row.values["source"]
        seen += check(answer, cleaned, ingested)
    assert seen["after edits"] > 5 and seen["bytes: jsonl"] > 5

    printed_by("shard", corpus / "speeches.jsonl.gz", alone, *options)
    (address,) = addresses_of(alone, 1, 6)
    (answer,) = json.loads(printed_by("trace", str(address), "--run", alone, "--json").stdout)
    assert answer["raw"]["state"] == "equal" and [s["stage"] for s in answer["stages"]] == []
    assert answer["raw"]["spans"] and answer["lineage_ends"] is None

    shutil.copytree(alone, copy, ignore=shutil.ignore_patterns("run.json", "ledger", "before"))
    (answer,) = json.loads(printed_by("trace", str(address), "--run", copy, "--json").stdout)
    assert "no run is there" in answer["lineage_ends"] and "raw" not in answer and answer["tokens"][0]["text"]
    (found,) = json.loads(printed_by("find", answer["doc_id"], "--run", copy, "--json").stdout)["documents"]
    assert any(p["first"] <= address.first <= p["last"] for p in found["places"])


def test_sources_that_changed_or_went(run: Path, corpus: Path, tmp_path: Path) -> None:
    """A missing or changed file is reported as such; everything before it is still reported."""
    source, out = tmp_path / "in/a.txt", tmp_path / "out"
    source.parent.mkdir()
    source.write_text("A short text of one line, for a test of what becomes of its file.\n")
    corpusmill(
        "shard", source.parent, out, "--tokenizer", run / "shards/tokenizer.json", "--workers", "0", "-q"
    )
    (address,) = addresses_of(out, 1, 1)
    for change, state in ((None, "equal"), ("Another text.", "differs"), ("", "gone")):
        if change is not None:
            source.write_text(change)
        if change == "":
            source.unlink()
        (answer,) = json.loads(printed_by("trace", str(address), "--run", out, "--json").stdout)
        assert answer["raw"]["state"] == state and answer["locator"] == "a.txt#0"
        assert (answer["raw"]["spans"] != []) == (state == "equal")
    assert (
        "raw"
        not in json.loads(printed_by("trace", str(address), "--run", out, "--json", "--no-raw").stdout)[0]
    )
