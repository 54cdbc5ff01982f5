"""Lines cut by the command, all the way into the ledger."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.__main__ import build
from corpusmill.pipeline.engine.publish import parse_table
from tests.command_line import CliRunner
from tests.pipeline.filter.helpers import PROSE

MINE = """
name: mine
origin: me
rules: [{name: cut_words_max, signal: mine.cut_words_ratio, at_most: 0.5}]
lines:
  - {name: menu, phrases: [log in], most_words: 3}
  - {name: mark, pattern: '\\[\\d+\\]', cut: match}
"""


def read(folder: Path) -> pa.Table:
    return pa.concat_tables([parse_table(path.read_bytes()) for path in sorted(folder.glob("*.parquet"))])


def test_a_set_of_the_users_own_cuts_and_the_ledger_reproduces_it(tmp_path: Path) -> None:
    texts = {"a": PROSE + "\n\nLög in\nLog in\nÜber [1] alles.\n", "b": "Log in\nLog in", "c": PROSE}
    lines = [json.dumps({"id": name, "text": text}) for name, text in texts.items()]
    (tmp_path / "in.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "mine.yaml").write_text(MINE, encoding="utf-8")
    out = tmp_path / "out"
    command = [
        "filter",
        str(tmp_path / "in.jsonl"),
        str(out),
        "--rules",
        str(tmp_path / "mine.yaml"),
        "--cut-lines",
    ]
    done = CliRunner().invoke(build(), [*command, "--workers", "0", "--quiet"])
    assert done.exit_code == 0, done.output
    left = {row["source_id"]: row["text"] for row in read(out / "documents").to_pylist()}
    assert left == {"a": PROSE + "\n\nLög in\nÜber  alles.\n", "c": PROSE}
    ledger = read(out / "ledger")
    assert len(ledger) == 3
    rows = {row["source_id"]: row for row in ledger.to_pylist()}
    assert [(rows[name]["outcome"], rows[name]["rule"]) for name in "abc"] == [
        ("kept", None), ("removed", "mine.cut_words_max"), ("kept", None),
    ]  # fmt: skip
    text, edits = texts["a"], rows["a"]["edits"]
    assert [(e["stage"], e["kind"], text[e["offset"] : e["offset"] + e["length"]]) for e in edits] == [
        ("filter", "mine.menu", "Log in\n"), ("filter", "mine.mark", "[1]"),
    ]  # fmt: skip
    assert pc.sum(pc.equal(ledger["outcome"], "kept")).as_py() == len(left)
    checked = CliRunner().invoke(build(), ["verify", str(out)])
    assert checked.exit_code == 0, checked.output
