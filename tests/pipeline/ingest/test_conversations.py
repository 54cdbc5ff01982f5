"""Conversations in every form and format become documents; what is none is quarantined with its reason, and nothing is lost."""

from __future__ import annotations

import csv
import json
import tarfile
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpusmill.pipeline.text.turns import parsed, row_of
from corpusmill.schemas.sources import Source
from tests.pipeline.ingest.helpers import Result, ingest

USER, BOT = {"role": "user", "content": "Hello?"}, {"role": "assistant", "content": "Yes.\nWhat is it?"}
ROWS: list[dict[str, Any]] = [
    {"id": "one", "messages": [USER, BOT], "topic": "greetings"},
    {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]},
    {"instruction": "Add.", "input": "1, 2", "output": "3"},
    {"prompt": "a", "completion": "b"},
    {"prompt": [USER], "chosen": [BOT], "rejected": [{"role": "assistant", "content": "No."}]},
    {"prompt": "a", "completion": "b", "label": False},
    {"text": "A whole text."},
]
BAD: list[dict[str, Any]] = [
    {"messages": [USER]},
    {"messages": [{"role": "a text about somebody else", "content": "x"}]},
    {"question": "?"},
    {"prompt": "a", "completion": "b", "label": "yes"},
]
BACK = [
    {"messages": [USER, BOT]},
    {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]},
    {"messages": [{"role": "user", "content": "Add.\n\n1, 2"}, {"role": "assistant", "content": "3"}]},
    *ROWS[3:],
]


def rows_of(result: Result) -> list[dict[str, Any]]:
    return [row_of(parsed(text)) for text in result.texts]


def lines(file: Path, rows: list[dict[str, Any]]) -> Path:
    file.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return file


def test_every_form(tmp_path: Path) -> None:
    result = ingest(lines(tmp_path / "a.jsonl", [*ROWS, *BAD]), conversations=True)
    assert rows_of(result) == BACK
    first = result.docs[0]
    assert (first["source_id"], first["metadata"]) == ("one", '{"topic":"greetings"}')
    assert result.docs[1]["metadata"] is None
    assert result.rules == ["ingest.no_conversation"] * 4
    reasons = [row["detail"].partition(", at byte")[0] for row in result.decisions]
    assert reasons[0] == "no message of the assistant"
    assert reasons[1].startswith("messages.0.role: a str of 26 is none of system, user"), "no text of the row"
    assert reasons[2].startswith("no conversation: none of messages")
    assert reasons[3] == "label: 'yes' is neither true nor false"
    kinds = ("messages", "sharegpt", "alpaca", "completion", "preference", "feedback", "text")
    assert {name: result.counters[f"conversations/{name}"] for name in kinds} == dict.fromkeys(kinds, 1)


def test_other_formats(tmp_path: Path) -> None:
    """The same conversations of an array of JSON, Parquet, Arrow, a tar, and (texts alone) CSV."""
    (tmp_path / "a.json").write_text(json.dumps(ROWS, indent=1))
    assert rows_of(ingest(tmp_path / "a.json", conversations=True)) == BACK

    chats = [{"id": str(n), "messages": [USER, {**BOT, "content": f"{n}"}]} for n in range(5)]
    wanted = [{"messages": chat["messages"]} for chat in chats]
    pq.write_table(pa.Table.from_pylist([*chats, {"id": "5"}]), tmp_path / "b.parquet", row_group_size=2)
    result = ingest(tmp_path / "b.parquet", conversations=True)
    assert rows_of(result) == wanted and [doc["source_id"] for doc in result.docs] == list("01234")
    assert result.decisions[0]["detail"].startswith("no conversation: none of")
    with pa.OSFile(str(tmp_path / "c.arrow"), "wb") as sink:
        table = pa.Table.from_pylist(chats)
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    assert rows_of(ingest(tmp_path / "c.arrow", conversations=True)) == wanted
    with tarfile.open(tmp_path / "d.tar", "w") as tar:
        tar.add(lines(tmp_path / "inside.jsonl", chats), "inside.jsonl")
    assert rows_of(ingest(tmp_path / "d.tar", conversations=True)) == wanted

    with (tmp_path / "e.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["instruction", "input", "output"])
        writer.writeheader()
        writer.writerow({"instruction": "Add.", "input": "", "output": "3"})
    assert rows_of(ingest(tmp_path / "e.csv", conversations=True)) == [
        {"messages": [{"role": "user", "content": "Add."}, {"role": "assistant", "content": "3"}]}
    ]
    with (tmp_path / "f.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["messages"])
        writer.writeheader()
        writer.writerows([{"messages": json.dumps(chat["messages"])} for chat in chats])
    assert rows_of(ingest(tmp_path / "f.csv", conversations=True)) == wanted


@pytest.mark.parametrize(
    ("name", "data"), [("a.txt", b"Some text."), ("a.html", b"<html><body>x</body></html>")]
)
def test_a_file_without_fields_is_one_record(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    result = ingest(tmp_path / name, conversations=True)
    assert not result.docs and result.rules == ["ingest.no_conversation"]
    assert "has no records with fields, as conversations are" in result.decisions[0]["detail"]


def test_a_mark_that_a_repair_brings_costs_its_conversation_alone(tmp_path: Path) -> None:
    """Text in a wrong encoding that becomes the line of a turn when it is repaired."""
    forged = "Look: â\x80\x9cthisâ\x80\x9d\n" + "␞2/2 assistant".encode().decode("latin-1") + "\nForged."
    rows = [{"messages": [{"role": "user", "content": text}, BOT]} for text in ("Plain?", forged, "Fine?")]
    result = ingest(lines(tmp_path / "a.jsonl", rows), conversations=True)
    assert [row["messages"][0]["content"] for row in rows_of(result)] == ["Plain?", "Fine?"]
    assert result.rules == ["ingest.broken_turns"]
    assert result.decisions[0]["detail"].startswith("turn 2 of 2 stands where turn 3 of")


def test_a_table_without_conversations_is_one_record(tmp_path: Path) -> None:
    pq.write_table(pa.table({"question": ["a"] * 3, "reply": ["b"] * 3}), tmp_path / "a.parquet")
    (tmp_path / "b.csv").write_text("question,reply\na,b\n")
    for name in ("a.parquet", "b.csv"):
        result = ingest(tmp_path / name, conversations=True)
        assert not result.docs and result.rules == ["ingest.no_conversation"]
        assert "(fields: question, reply)" in result.decisions[0]["detail"]


def test_the_source_says_what_does_not_go_together() -> None:
    for given, reason in [
        ({"format": "warc"}, "format: warc has no records with fields"),
        ({"text_column": "messages"}, "text_column and text_join do not go with conversations"),
    ]:
        with pytest.raises(ValueError, match=reason):
            Source.model_validate({"paths": ["a"], "conversations": True, **given})


def test_other_sources_stay_as_they_were() -> None:
    """The option shows in no key and no dump of a source without it."""
    assert "conversations" not in Source(paths=["a"]).model_dump()
