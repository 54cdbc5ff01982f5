"""A stage of one's own in a recipe, on Dask workers: killed, and resumed in one process, with the same bytes."""

from __future__ import annotations

import json
from pathlib import Path

from tests.e2e.cli import corpusmill, difference
from tests.e2e.killing import Killing, finished, made_up, no_one_left, write_lines

MODULE = """
import time
import pyarrow as pa
import pyarrow.compute as pc

def halve(docs, drop="aa"):
    time.sleep(0.2)  # so that kills fall into it
    kept = docs.filter(pc.invert(pc.match_substring(docs["text"], drop)))
    texts = [text[: len(text) // 2 + 1] for text in kept["text"].to_pylist()]
    return kept.set_column(kept.column_names.index("text"), "text", pa.array(texts, pa.large_string()))
"""
RECIPE = """\
name: own
sources: {{made: {{paths: [{folder}/docs.jsonl]}}}}
ingest: {{partition_mb: 0.06}}
stages:
  - ingest
  - {{python: "{module}:halve", version: 1, params: {{drop: {drop}}}}}
  - dedup
  - split
cluster: {{workers: 2}}
"""


def test_killed_and_resumed_the_bytes_are_the_same(tmp_path: Path) -> None:
    (tmp_path / "own_stage_of_a_test.py").write_text(MODULE)
    write_lines(tmp_path / "docs.jsonl", made_up(5)[:400], 0)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(RECIPE.format(folder=tmp_path, module="own_stage_of_a_test", drop="qq"))
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    corpusmill("run", recipe, "--set", f"output={whole}", "--workers", "0")
    killing = Killing(["run", str(recipe), "--set", f"output={broken}"], str(broken / "halve"))
    killing.at([6], lambda: True)
    assert len(killing.kills) == 1
    corpusmill("run", recipe, "--set", f"output={broken}", "--workers", "0")
    assert all(no_one_left(group) for group in killing.groups)
    assert difference(finished(whole), finished(broken)) == []
    manifest = json.loads((broken / "halve/manifest.json").read_text())
    assert manifest["counts"]["removed"] > 5 and manifest["counters"]["edited"] > 50
    assert len(manifest["partitions"]) > 5
    assert json.loads(corpusmill("verify", broken, "--json").stdout)["problems"] == []
    gone = next(row for row in (tmp_path / "docs.jsonl").read_text().splitlines() if "qq" in row)
    (answer,) = json.loads(corpusmill("why", json.loads(gone)["id"], "--run", broken, "--json").stdout)
    assert (answer["stage"], answer["rule"], answer["outcome"]) == ("halve", "halve", "removed")
