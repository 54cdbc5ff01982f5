"""Takedowns: the shards are then as if the documents had never come, and never in between without saying so."""

# ruff: noqa: F811 (fixtures come by import, and arguments have their names)
from __future__ import annotations

import contextlib
import json
import random
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import corpusmill.__main__ as cli
from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.document_hash import purpose_seed
from corpusmill.pipeline.engine.takedown_log import read_log
from corpusmill.pipeline.inspect.locate import find
from corpusmill.pipeline.inspect.shards import verify_shards
from corpusmill.pipeline.inspect.takedown import change
from corpusmill.pipeline.inspect.takedown import run as takedown
from corpusmill.pipeline.inspect.verify import verify
from corpusmill.pipeline.shard.read import open_set, read_listed, read_set
from corpusmill.pipeline.shard.stage import Shards
from corpusmill.schemas.data import FetchConfig
from corpusmill.schemas.shards import TAKEDOWNS, TextShard
from corpusmill.train.data.fetch import Blocks
from corpusmill.train.data.shards import open_shards
from tests.conftest import Serial
from tests.faults.dedup import Main, main, one_line  # noqa: F401 (a fixture)
from tests.faults.shards import (  # noqa: F401 (fixtures)
    changed,
    files,
    held,
    kept,
    ledger,
    run,
    run_recipe,
    small,
    take,
)
from tests.pipeline.corpus import contents
from tests.pipeline.shard.helpers import corpus, indexes, prepared


def test_it_is_as_if_they_had_never_come(small: Path, run: Path, tmp_path: Path) -> None:
    """The same bytes as from a stage that leaves them out; every other file of the run is unchanged."""
    rows = random.Random(1).sample(kept(run), 9)
    names = [
        row["doc_id"].hex() if i % 3 == 0 else row[("source_id", "url")[i % 2]] for i, row in enumerate(rows)
    ]
    before = contents(run)
    result = take(run, names)
    ids = {row["doc_id"].hex() for row in rows}
    assert (result["named"], result["found"], result["in_shards"], result["not_found"]) == (9, 9, 9, [])
    assert set(result["doc_ids"]) == ids and not held(run / "shards") & ids
    assert verify(Folder(run), sample=None).problems == []
    after = contents(run)
    assert {n for n in {*before, *after} if before.get(n) != after.get(n)} == {
        *(f"shards/{path}{end}" for path in result["shards"] for end in ("", ".idx")),
        *(f"shards/{path.rpartition('/')[0]}/index.json" for path in result["shards"]),
        "shards/index.json", "shards/manifest.json", "shards/takedowns.jsonl", "manifest.json",
    }  # fmt: skip
    assert run_recipe(small, run) == [], "the stage is finished"

    shutil.copytree(small / "run", tmp_path / "again")
    shutil.copy(run / "shards" / TAKEDOWNS, tmp_path / "again/shards")
    assert run_recipe(small, tmp_path / "again", "shard.block_tokens=2048") == ["shard"]
    assert verify(Folder(tmp_path / "again"), sample=None).problems == []
    assert not held(tmp_path / "again/shards") & ids
    assert run_recipe(small, tmp_path / "again") == ["shard"]
    assert files(tmp_path / "again") == files(run)
    counters = [
        json.loads((d / "shards/manifest.json").read_text())["counters"] for d in (run, tmp_path / "again")
    ]
    assert counters[0] == counters[1]


def test_a_second_takedown_and_the_same_again(run: Path) -> None:
    rows = kept(run)
    take(run, [rows[0]["source_id"]])
    first = files(run)
    result = take(run, [rows[0]["source_id"], rows[1]["url"]])
    assert (result["in_shards"], result["already"]) == (1, 1)
    second = contents(run)
    result = take(run, [rows[1]["url"]])
    assert (result["in_shards"], result["already"], result["shards"], result["tokens"]) == (0, 1, [], 0)
    assert contents(run) == second != first
    log = read_log(Folder(run / "shards"))
    assert [entry.doc_ids for entry in log.entries] == [
        [rows[0]["doc_id"].hex()], sorted(r["doc_id"].hex() for r in rows[:2])
    ]  # fmt: skip
    assert verify(Folder(run)).problems == []


def test_a_cluster_goes_as_a_whole(run: Path) -> None:
    removed = next(row for row in ledger(run) if row["duplicate_of"] is not None)
    result = take(run, [removed["source_id"]], dry_run=True)
    (copy,) = result["not_in_shards"]
    assert copy["duplicate_of"] == removed["duplicate_of"].hex() in result["copies_stay"]
    assert result["in_shards"] == 0 and result["shards"] == []
    result = take(run, [removed["source_id"]], cluster=True)
    assert removed["duplicate_of"].hex() in result["doc_ids"] and result["copies_stay"] == []
    members = {r["doc_id"] for r in ledger(run) if r["cluster_id"] == removed["cluster_id"]}
    assert members <= set(read_log(Folder(run / "shards")).taken)
    assert verify(Folder(run)).problems == []


def test_a_dry_run_writes_nothing(run: Path) -> None:
    row = kept(run)[3]
    before = contents(run)
    result = take(run, [row["url"], "nobody"], dry_run=True)
    assert (result["in_shards"], result["not_found"]) == (1, ["nobody"]) and len(
        result["shards"]
    ) == 2  # tokens, text
    assert contents(run) == before


def test_few_requests_find_a_document(run: Path) -> None:
    """Its place follows from the hash of its id: the lists of about log2(blocks) blocks are read."""
    row = kept(run)[5]
    blocks = sum(s.nsamples for _, index in indexes(Folder(run / "shards")) for s in index.shardlist)
    result = take(run, [row["doc_id"].hex()], dry_run=True)
    assert blocks > 40 and result["read"] < 40  # of tokens and of texts, of train and validation


def test_many_documents_are_looked_for_by_the_workers(run: Path) -> None:
    """Where halving would come by every list anyway: a tar a task, and nothing of it is kept."""
    opened, scheduler = open_set(Folder(run / "shards")), Serial()
    rows = [row for row in kept(run) if row["source"] == "web"]
    seed = purpose_seed(7, "shard")
    few = find(opened.folder, {rows[0]["doc_id"]: "web"}, seed, scheduler)
    assert len(few.tars) == 2 and "takedown: web-train" not in scheduler.labels
    many = find(opened.folder, {row["doc_id"]: "web" for row in rows}, seed, scheduler)
    assert many.documents == {row["doc_id"] for row in rows}
    assert {"takedown: web-train", "takedown: web-train-text"} <= set(scheduler.labels)
    assert few.tars.items() <= {place: few.documents & ids for place, ids in many.tars.items()}.items()


def test_without_a_ledger_and_without_a_manifest(run: Path, tmp_path: Path) -> None:
    """A folder of shards that was copied away: ids alone, and all lists are read."""
    row = kept(run)[5]
    shutil.copytree(run / "shards", tmp_path / "copy")
    (tmp_path / "copy/manifest.json").unlink()
    with pytest.raises(UserError, match="needs the ledger"):
        take(tmp_path / "copy", [row["url"]], shards=True)
    result = take(tmp_path / "copy", [row["doc_id"].hex(), "0" * 32], shards=True)
    assert (result["in_shards"], result["not_found"]) == (1, ["0" * 32])
    entries = read_set(Folder(run / "shards")).entries
    tars = [shard for entry in entries for shard in read_listed(Folder(run / "shards"), entry).shardlist]
    assert result["read"] == sum(tar.nsamples + isinstance(tar, TextShard) for tar in tars)
    assert verify_shards(Folder(tmp_path / "copy")) == []
    take(run, [row["url"]])
    assert files(run) == {n: d for n, d in contents(tmp_path / "copy").items() if n != TAKEDOWNS}


def test_another_order_than_the_manifest_says(run: Path) -> None:
    """Where a kept document is not found by its hash, it is looked for everywhere."""
    file = run / "shards/manifest.json"
    manifest = json.loads(file.read_bytes())
    manifest["params"]["seed"] += 1
    file.write_text(json.dumps(manifest))
    result = take(run, [kept(run)[5]["url"]])
    assert result["in_shards"] == 1 and verify(Folder(run)).problems == []


def test_a_document_that_was_found_and_is_not_there(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = change.rewrite
    monkeypatch.setattr(change, "rewrite", lambda task: real(task).model_copy(update={"gone": []}))
    before = files(run)
    with pytest.raises(WorkError, match=r"\.tar: documents found before are not there; run verify"):
        take(run, [kept(run)[5]["url"]])
    assert {n: d for n, d in files(run).items() if not n.startswith("takedown/")} == before


def test_a_store_that_cannot_copy(tmp_path: Path) -> None:
    class Uncopied(Folder):
        @property
        def store(self) -> Any:
            raise WorkError("too large for a copy")

    (tmp_path / "new").write_bytes(bytes(range(256)) * 20_000)
    change._place(Uncopied(tmp_path / "new"), Folder(tmp_path / "old"))
    assert (tmp_path / "old").read_bytes() == (tmp_path / "new").read_bytes()


def test_offsets_of_texts_that_are_cut_stop_the_search(run: Path) -> None:
    """Without a seed every document's header is looked at: none may be passed over."""
    for sidecar in (run / "shards").rglob("*-text-*.idx"):
        changed(sidecar, lambda data: data.__delitem__(slice(8, 16)))
    (run / "shards/manifest.json").unlink()
    with pytest.raises(WorkError, match=r"\.tar\.idx: its offsets are not those of the tar"):
        take(run / "shards", [kept(run)[5]["doc_id"].hex()], shards=True, dry_run=True)


def test_what_is_empty_is_no_more(tmp_path: Path) -> None:
    """A source of one document; then every document of all."""
    made, here = prepared(tmp_path, corpus())
    Shards(made).run(here)
    shards = tmp_path / "shards"
    lone = next(folder for folder, index in indexes(Folder(shards)) if index.source == "lone")
    (doc_id,) = {i for i in held(shards) if i in (lone / "lone-train-000000.tar").read().decode("latin-1")}
    result = take(shards, [doc_id], shards=True)
    assert result["emptied"] == ["lone/train/lone-train-000000.tar"]
    assert not Path(lone.url).exists() and verify_shards(Folder(shards)) == []
    take(shards, sorted(held(shards)), shards=True)
    assert (
        verify_shards(Folder(shards)) == []
        and indexes(Folder(shards)) == []
        and not list(shards.rglob("*.tar"))
    )


@pytest.mark.parametrize(
    ("seed", "form"), [(0, "both"), (1, "both"), (1, "tokens"), (2, "tokens"), (3, "both")]
)
def test_any_documents_of_hard_cases(tmp_path: Path, seed: int, form: str) -> None:
    """Documents longer than blocks, empty ones, blocks that end inside characters: as if they had never come."""
    made, here = prepared(tmp_path / "a", corpus(), format=form)
    Shards(made).run(here)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    ids = sorted(held(tmp_path / "a/shards"))
    gone = random.Random(seed).sample(ids, [1, 5, 60, len(ids) - 3][seed])
    result = take(tmp_path / "a/shards", gone, shards=True)
    assert verify_shards(Folder(tmp_path / "a/shards")) == []
    shutil.copy(tmp_path / "a/shards" / TAKEDOWNS, tmp_path / "b/shards")
    made, here = prepared(tmp_path / "b", corpus(), format=form)
    Shards(made).run(here)
    again = contents(tmp_path / "b/shards")
    # Where a tar is no more, the stage leaves no gap in the numbers, and a takedown does.
    assert result["emptied"] or contents(tmp_path / "a/shards") == again
    assert held(tmp_path / "b/shards") == held(tmp_path / "a/shards") == set(ids) - set(gone)


def test_a_damaged_tar_stops_it_and_nothing_is_changed(run: Path) -> None:
    row = next(row for row in kept(run) if row["source"] == "web")
    (first, text) = take(run, [row["url"]], dry_run=True)["shards"]
    for path in (first, text):
        file = run / "shards" / path
        whole = file.read_bytes()
        changed(file, lambda data: data.__setitem__(700, data[700] ^ 1))
        before = files(run)
        with pytest.raises(WorkError, match=file.name):
            take(run, [row["url"]])
        assert {n: d for n, d in files(run).items() if not n.startswith("takedown/")} == before
        file.write_bytes(whole)
        assert verify(Folder(run)).problems == []


def test_a_log_that_is_not_honoured_is_named(run: Path) -> None:
    row = kept(run)[5]
    old = {name: (run / "shards" / name).read_bytes() for name in contents(run / "shards")}
    take(run, [row["url"]])
    log = (run / "shards" / TAKEDOWNS).read_bytes()
    for name, data in old.items():
        (run / "shards" / name).write_bytes(data)
    (run / "shards" / TAKEDOWNS).write_bytes(log)
    recorded, *problems = verify(Folder(run)).problems
    assert recorded.startswith(f"{run}/shards/manifest.json: checksum differs from that of")
    assert problems and all(
        "1 documents stand in takedowns.jsonl as taken down" in problem for problem in problems
    )
    (run / "shards" / TAKEDOWNS).write_bytes(b"{}\n")
    (problem,) = verify_shards(Folder(run / "shards"))
    assert "takedowns.jsonl: line 1: not a takedown" in problem


def test_whoever_holds_the_old_lists_never_reads_other_tokens(run: Path) -> None:
    """A reader of training that was opened before: each block as it was, or an error that names it."""
    old = open_shards(str(run / "shards"))
    sources = list(old.train.values())
    keys = [(s, b) for s, source in enumerate(sources) for b in range(len(source.blocks))]
    fetch = Blocks(sources, FetchConfig(attempts=1, bad_blocks=0))
    tokens = {key: data.tokens.copy() for key, data in fetch.get(keys).items()}
    fetch.close()
    take(run, [row["url"] for row in random.Random(2).sample(kept(run), 6)])
    fetch, failed = Blocks(sources, FetchConfig(attempts=1, bad_blocks=0)), 0
    for key in keys:
        try:
            assert (fetch.get([key])[key].tokens == tokens[key]).all()
        except WorkError as error:
            assert any(
                reported in str(error) for reported in ("checksum differs", "truncated", "cannot read")
            )
            failed += 1
    fetch.close()
    assert 0 < failed < len(keys)


def test_the_command(
    run: Path, main: Main, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = kept(run)[2]
    (run.parent / "gone.jsonl").write_text(json.dumps({"url": row["url"]}) + '\n{"id": "nobody"}\n')
    file = run.parent / "gone.jsonl"

    def output(*arguments: str | Path) -> str:
        monkeypatch.setattr(sys, "argv", ["corpusmill", "takedown", *map(str, arguments)])
        with contextlib.suppress(SystemExit):
            cli.main()
        return capsys.readouterr().out

    assert "holds some: " in output(file, "--run", run, "--dry-run")
    out = output(file, "--run", run, "-q")
    assert "named: 2; known: 1; in the shards: 1 documents" in out and "not found: nobody" in out
    assert "may still hold the text: " in out and "removed: " in out
    assert json.loads(output(file, "--run", run, "--json"))["already"] == 1
    for options, others in (
        ([], "are out of the shards"),
        (["--json"], "are out of the shards"),
        (["--dry-run"], "would go"),
    ):
        code, error = main("takedown", file, "--run", run, "-q", *options)
        assert code == 1, "a request that is met in part has its own exit code"
        one_line(error, f"1 of the 2 documents named there not found, such as 'nobody'; the others {others}")
    (run.parent / "gone.txt").write_text(row["url"])
    assert main("takedown", run.parent / "gone.txt", "--run", run, "-q") == (0, "")
    for arguments, words in (
        ([file], "give --run DIR, or --shards DIR"),
        ([file, "--run", run, "--shards", run], "give --run DIR, or --shards DIR"),
        ([file, "--run", run.parent / "none"], "no shards there"),
        ([file, "--shards", run / "split"], "no shards there"),
        ([run.parent / "none", "--run", run], "not found"),
    ):
        code, error = main("takedown", *arguments)
        assert code == 2
        one_line(error, words)
    (run.parent / "other").write_text("nobody\n")
    code, error = main("takedown", run.parent / "other", "--run", run, "-q")
    assert code == 2
    one_line(error, "none of the 1 documents named there is known")


def test_ctrl_c_tells_the_state(run: Path, main: Main, monkeypatch: pytest.MonkeyPatch) -> None:
    row, before = kept(run)[2], contents(run)
    (run.parent / "gone.txt").write_text(row["url"])
    command = ("takedown", run.parent / "gone.txt", "--run", run, "-q")

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(change, "_lists", stop)
        output = "interrupted; the shards are as they were: run the same command again\n"
        assert main(*command) == (130, output)
        after = contents(run)
        assert {n: d for n, d in after.items() if not n.startswith("shards/takedown/")} == before != after
    with monkeypatch.context() as patch:
        patch.setattr(change, "_place", stop)
        code, output = main(*command)
        assert code == 130 and output.count("\n") == 1
        assert output.startswith("interrupted; the new shards are in place in part")
        assert "run the same command again, which finishes it" in output
    assert main(*command)[0] == 0 and verify(Folder(run)).problems == []


def test_on_an_object_store(run: Path, s3: str) -> None:
    for path, data in contents(run).items():
        (Folder(s3) / path).write(data)
    row = kept(run)[4]
    file = Folder(s3) / "gone.txt"
    file.write(row["url"].encode())
    result = takedown.take_down(takedown.place_of(s3, None), file, False, False, Serial(), lambda line: None)
    assert result["in_shards"] == 1
    file.store.delete([file.path])
    assert verify(Folder(s3)).problems == []
    take(run, [row["url"]])
    found = {e.path: (Folder(s3) / "shards" / e.path).read() for e in (Folder(s3) / "shards").list()}
    assert {n: d for n, d in found.items() if n not in ("manifest.json", TAKEDOWNS)} == files(run)
