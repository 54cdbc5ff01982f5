"""Conversations through the whole pipeline, and into a fine-tuning: what was planted is found, nothing else is lost."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest

from corpusmill.schemas.conversation_lines import read_line
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.trainer import train
from tests.conftest import ROOT
from tests.e2e.cli import corpusmill, difference
from tests.e2e.killing import Killing, finished, no_one_left, rows
from tests.train.finetune.models import base_model, config_of, talk

RECIPE = ROOT / "configs/recipes/chat.yaml"
# What should become of each line of examples/chat/raw/planted.jsonl; None: it is kept.
PLANTED = [
    "dedup.exact", "dedup.exact", "dedup.exact", None, "decontaminate.question", "conversation.shortest_answer_min",
    "ingest.no_conversation", "ingest.no_conversation", "ingest.no_conversation",
]  # fmt: skip
MODULE = """
import pyarrow as pa
import pyarrow.compute as pc

def first_line_of_turns(docs):
    # Takes the line of the second turn of every conversation about opposites.
    texts = [t.replace("\\n␞2/2 assistant", "") if "opposite" in t else t.replace("plus", "and") for t in docs["text"].to_pylist()]
    return docs.set_column(docs.column_names.index("text"), "text", pa.array(texts, pa.large_string()))
"""


def written(run: Path) -> dict[str, list[dict[str, Any]]]:
    """`<source>/<side>` -> its lines."""
    found: dict[str, list[dict[str, Any]]] = {}
    for file in sorted((run / "conversations").rglob("*.jsonl")):
        place = file.parent.relative_to(run / "conversations").as_posix()
        found.setdefault(place, []).extend(map(orjson.loads, file.read_bytes().splitlines()))
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("chat") / "run"
    corpusmill("run", RECIPE, "--set", f"output={out}", "--workers", "0")
    return out


def test_what_was_planted_is_found_and_nothing_else_goes(run: Path) -> None:
    ledger = [row for folder in (run / "ledger").rglob("*.parquet") for row in rows(folder.parent)]
    ledger = list({row["doc_id"]: row for row in ledger}.values())
    fates = {row["locator"]: row["rule"] for row in ledger if row["source"] == "planted"}
    assert [fates[f"planted.jsonl#{number}"] for number in range(9)] == PLANTED
    assert {row["rule"] for row in ledger if row["source"] != "planted"} == {None}
    lines = written(run)
    kept = sum(row["outcome"] == "kept" for row in ledger)
    assert sum(map(len, lines.values())) == kept == 644 + 115 + 1
    assert set(lines) == {f"{source}/{side}" for source in ("talks", "tasks") for side in ("train", "validation")} | {
        "planted/train"
    }  # fmt: skip
    (asked,) = lines["planted/train"]
    answer = asked["messages"][1]["content"]
    assert "<EMAIL>" in answer and "<PHONE>" in answer and "example.org" not in json.dumps(asked)


def test_lines_are_the_conversations_that_came_in(run: Path) -> None:
    """The same messages, each with what is known of it; Alpaca's as messages."""
    lines = written(run)
    raw = [
        json.loads(line)["messages"] for line in (ROOT / "examples/chat/chat.jsonl").read_text().splitlines()
    ]
    talks = [*lines["talks/train"], *lines["talks/validation"]]
    assert Counter(map(json.dumps, raw)) == Counter(json.dumps(one["messages"]) for one in talks)
    one = lines["tasks/train"][0]
    assert set(one) == {"messages", "doc_id", "source", "license"} and one["license"] == "CC0-1.0"
    assert one["messages"][0]["content"].startswith("Answer in one sentence.\n\n")
    (found,) = json.loads(corpusmill("why", one["doc_id"], "--run", run, "--json").stdout)
    assert (found["source"], found["outcome"]) == ("tasks", "kept")
    assert json.loads(corpusmill("verify", run, "--json").stdout)["problems"] == []
    for side in lines.values():
        for row in side:
            read_line(orjson.dumps(row))


def test_an_evaluation_item_is_found_across_turns(tmp_path: Path) -> None:
    """A question too short to be found alone, in one turn, and its answer in the next; the question alone stays."""
    question, answer = (
        "Which river runs through the old town of Bern?",
        "It is the Aare, which bends around it",
    )
    talks = [
        talk("Hi.", "Hello.", question, answer),
        talk(question, "I do not know."),
        talk("Other?", "Yes."),
    ]
    (tmp_path / "evals.jsonl").write_text(json.dumps({"question": question, "answer": answer}) + "\n")
    (tmp_path / "a.jsonl").write_bytes(b"".join(orjson.dumps(one) + b"\n" for one in talks))
    recipe, out = tmp_path / "recipe.yaml", tmp_path / "run"
    recipe.write_text(
        f"name: small\noutput: {out}\nsources: {{s: {{paths: [{tmp_path}/a.jsonl], conversations: true}}}}\n"
        f"stages: [ingest, decontaminate, split, conversations]\ndecontaminate: {{against: [{tmp_path}/evals.jsonl]}}\n"
    )  # fmt: skip
    corpusmill("run", recipe, "--workers", "0")
    left = [row["messages"][-1]["content"] for some in written(out).values() for row in some]
    assert sorted(left) == ["I do not know.", "Yes."]


def test_a_fine_tuning_takes_the_folder_as_it_is(run: Path, tmp_path: Path) -> None:
    config = config_of(
        tmp_path, str(run / "conversations"), base_model(tmp_path / "base"), **{"data.sequence_length": 320}
    )
    result = train(TrainConfig.model_validate(config))
    assert result is not None and set(result["validation"]) == {"talks", "tasks"}
    summaries = [json.loads(file.read_text()) for file in tmp_path.rglob("conversations.json")]
    lines = written(run)
    for source in ("talks", "tasks", "planted"):
        count = sum(len(some) for place, some in lines.items() if place.startswith(f"{source}/"))
        assert summaries[0]["sources"][source]["kept"] == summaries[0]["sources"][source]["lines"] == count


def test_a_change_repeats_the_end_and_leaves_no_old_file(tmp_path: Path) -> None:
    def write(name: str, count: int) -> None:
        rows = [
            {**talk(f"Question {name} {n}?", f"Answer {n}."), "id": f"{name}{n}", "about": "x"}
            for n in range(count)
        ]
        (tmp_path / f"{name}.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))

    write("a", 20), write("b", 20)
    recipe, out = tmp_path / "recipe.yaml", tmp_path / "run"
    recipe.write_text(
        f"name: small\noutput: {out}\nsources: {{s: {{paths: ['{tmp_path}/*.jsonl'], conversations: true}}}}\n"
        "stages: [ingest, dedup, split, conversations]\nsplit: {validation_share: 0.1}\ningest: {partition_mb: 0.0005}\n"
    )  # fmt: skip
    corpusmill("run", recipe, "--workers", "0")
    first = written(out)
    assert {row["metadata"]["about"] for row in first["s/train"]} == {"x"}
    ingested = (out / "ingest/manifest.json").read_bytes()
    corpusmill("run", recipe, "--workers", "0", "--replace", "--set", "conversations.fields=[source_id]")
    again = written(out)
    assert [set(row) for row in again["s/train"]] == [{"messages", "doc_id", "source", "source_id"}] * len(
        first["s/train"]
    )
    assert (out / "ingest/manifest.json").read_bytes() == ingested
    (tmp_path / "b.jsonl").unlink()
    corpusmill("run", recipe, "--workers", "0", "--replace")
    left = [row["source_id"] for some in written(out).values() for row in some]
    assert sorted(left) == sorted(f"a{n}" for n in range(20))
    # Of the files there, none is but those that the manifest names.
    manifest = json.loads((out / "conversations/manifest.json").read_text())
    there = {
        str(file.relative_to(out / "conversations"))
        for file in (out / "conversations").rglob("*")
        if file.is_file()
    }
    assert there == {"manifest.json", *(file["path"] for file in manifest["files"])}


def test_killed_and_resumed_on_workers_the_bytes_are_the_same(tmp_path: Path) -> None:
    cut = ("--set", "ingest.partition_mb=0.002", "--set", "stages=[ingest,filter,split,conversations]")
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    corpusmill("run", RECIPE, "--set", f"output={whole}", *cut, "--workers", "0")
    killing = Killing(
        ["run", str(RECIPE), "--set", f"output={broken}", *cut, "--workers", "2"],
        str(broken / "conversations"),
    )
    killing.at([4], lambda: True)
    assert len(killing.kills) == 1
    corpusmill("run", RECIPE, "--set", f"output={broken}", *cut, "--workers", "0")
    assert all(no_one_left(group) for group in killing.groups)
    assert difference(finished(whole), finished(broken)) == []
    assert len(json.loads((whole / "conversations/manifest.json").read_text())["files"]) > 20


def test_a_stage_that_breaks_turns_loses_no_conversation_in_silence(tmp_path: Path) -> None:
    (tmp_path / "breaks_turns_in_a_test.py").write_text(MODULE)
    out, recipe = tmp_path / "run", tmp_path / "recipe.yaml"
    recipe.write_text(
        f"name: own\noutput: {out}\nsources: {{talks: {{paths: [{ROOT}/examples/chat/chat.jsonl], conversations: true}}}}\n"
        "stages:\n  - ingest\n  - {python: 'breaks_turns_in_a_test:first_line_of_turns', version: 1}\n  - split\n  - conversations\n"
    )  # fmt: skip
    corpusmill("run", recipe, "--workers", "0")
    manifest = json.loads((out / "first_line_of_turns/manifest.json").read_text())
    counts = manifest["counts"]
    broken = counts["quarantined"]
    assert counts["kept"] + broken == 644 and broken > 50
    assert manifest["counters"]["quarantined/first_line_of_turns.broken_turns"] == broken
    lines = [json.dumps(row) for some in written(out).values() for row in some]
    assert len(lines) == 644 - broken
    assert not any("plus" in line for line in lines if "opposite" not in line)
    assert all("opposite" not in line for line in lines if line.count('"role"') == 2)
