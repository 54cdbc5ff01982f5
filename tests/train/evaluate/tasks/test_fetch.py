"""Rows fetched by a task's name, from a local server that speaks the Hub's API."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpusmill.common import http_files
from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.schemas.tasks import Task, TaskData
from corpusmill.train.evaluate.tasks.data import files_of, read_rows
from corpusmill.train.evaluate.tasks.fetch import fetch
from corpusmill.train.evaluate.tasks.read import Found, find_task
from corpusmill.train.evaluate.tasks.render import Renderer
from tests.train.test_commands import command
from tests.web import Answer, Hub

CONVERTED = "refs/convert/parquet"
TEST = [{"question": f"What is {n} + 1?", "answer": f"It is.\n#### {n + 1}"} for n in range(5)]
TRAIN = [{"question": f"And {n}?", "answer": f"#### {n}"} for n in range(8)]


def parquet(rows: list[dict[str, object]]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    return bytes(sink.getvalue())


def serve(hub: Hub, name: str, files: dict[str, bytes], revision: str = CONVERTED, **about: bool) -> str:
    repo = hub.repo(name, {"README.md": b"card"}, **about)
    return repo.commit(files, revision)


def test_rows_and_examples_come_with_a_record(hub: Hub, tmp_path: Path) -> None:
    files = {
        "main/test/0000.parquet": parquet(TEST[:3]), "main/test/0001.parquet": parquet(TEST[3:]),
        "main/train/0000.parquet": parquet(TRAIN), "socratic/test/0000.parquet": parquet(TRAIN),
    }  # fmt: skip
    commit = serve(hub, "openai/gsm8k", files)
    shown = command("task-data", "gsm8k", "--out", str(tmp_path))
    assert f"gsm8k.jsonl: 5 rows of hf://datasets/openai/gsm8k@{commit}" in shown and "licence: MIT" in shown
    found = find_task("gsm8k")
    where = files_of(found, {}, [str(tmp_path)])
    assert [row.columns for row in read_rows(where.rows).rows] == TEST
    examples = read_rows(where.examples)
    assert [row.columns for row in examples.rows] == TRAIN
    record = TaskData.from_json((tmp_path / "gsm8k.source.json").read_bytes(), "record")
    data = (tmp_path / "gsm8k.jsonl").read_bytes()
    assert record.sha256 == hashlib.sha256(data).hexdigest() and record.bytes == len(data)
    assert record.files == ["main/test/0000.parquet", "main/test/0001.parquet"]
    rendered = Renderer(found.task, examples.rows).render(read_rows(where.rows).rows, 5)
    assert len(rendered.questions) == 5 and not rendered.skipped
    again = json.loads(command("task-data", "gsm8k", "--out", str(tmp_path), "--json"))
    assert again[0] == record.model_dump() and (tmp_path / "gsm8k.jsonl").read_bytes() == data


def test_several_configurations_and_other_kinds_of_file(hub: Hub, tmp_path: Path) -> None:
    pair = {"sentence_good": "a", "sentence_bad": "b", "UID": "x", "field": "f", "pair_id": 1}
    serve(
        hub,
        "nyu-mll/blimp",
        {f"{name}/train/0000.parquet": parquet([{**pair, "UID": name}]) for name in ("one", "two")},
    )
    fetch(find_task("blimp").task, Folder(tmp_path))
    rows = read_rows([str(tmp_path / "blimp.jsonl")]).rows
    assert [(row.columns["UID"], row.columns["hub_config"]) for row in rows] == [
        ("one", "one"),
        ("two", "two"),
    ]
    assert len(Renderer(find_task("blimp").task).render(rows, 2).questions) == 2
    serve(hub, "me/mine", {"data/a.jsonl": b'{"q": 1}\n{"q": 2}\n', "data/b.csv": b"q\n3\n"}, "main")
    hub_keys = {"repo": "me/mine", "split": "test", "revision": "main", "files": "data/*"}
    task = Task.model_validate({"task": "mine", "doc_to_target": "q", "hub": hub_keys})
    (record,) = fetch(task, Folder(tmp_path))
    assert (record.rows, record.files) == (3, ["data/a.jsonl", "data/b.csv"])
    where = files_of(Found(task, None), {}, [str(tmp_path)])
    assert [row.columns["q"] for row in read_rows(where.rows).rows] == [1, 2, "3"]


def test_refusals_are_one_line(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = find_task("piqa").task
    out = Folder(tmp_path)
    with pytest.raises(UserError, match="hf://datasets/baber/piqa: no such data set, or no right to read it"):
        fetch(task, out)
    serve(hub, "baber/piqa", {"default/train/0000.parquet": b""})
    with pytest.raises(UserError, match=r"has no default/validation/\*\.parquet; there are: default/train"):
        fetch(task, out)
    serve(hub, "baber/piqa", {"default/validation/0000.parquet": b"PAR1 no table"})
    with pytest.raises(WorkError, match=r"0000\.parquet: not a Parquet file that can be read"):
        fetch(task, out)
    serve(hub, "baber/piqa", {"default/validation/0000.parquet": parquet(TEST)}, gated=True)
    with pytest.raises(UserError, match="hf://datasets/baber/piqa: gated: accept its terms at"):
        fetch(task, out)
    monkeypatch.setattr(http_files, "RETRIES", 1)
    hub.server.faults.append(lambda asked: Answer(503))
    with pytest.raises(WorkError, match="hf://datasets/baber/piqa"):
        fetch(task, out)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UserError, match="HF_HUB_OFFLINE is set"):
        fetch(task, out)
    with pytest.raises(UserError, match="mine: names no data set .hub.; give its rows with --data mine=FILE"):
        fetch(Task(task="mine", doc_to_target="x"), out)
    assert not list(tmp_path.iterdir())
