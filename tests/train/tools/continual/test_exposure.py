"""One accounting over a chain of runs equals a recount from the description of every batch."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from corpusmill.__main__ import build
from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.continual import PHASE
from corpusmill.train.data.fetch import Blocks
from corpusmill.train.data.inspect import describe_batch
from corpusmill.train.data.opening import open_run_data
from corpusmill.train.guard.journal import of_run
from corpusmill.train.run_folder import open_run
from corpusmill.train.tools.continual.exposure import count, documents, exposure, of_document
from corpusmill.train.tools.continual.phases import phases
from tests.command_line import CliRunner
from tests.train.conftest import write_shards
from tests.train.test_resume import run

Make = Callable[..., dict[str, Any]]


@pytest.fixture
def chain(config: Make, tmp_path: Path) -> list[str]:
    """Three runs: the second continues the first from its step 6 and replays it, the third continues the second."""
    crawl = write_shards(Folder(tmp_path / "crawl"), {"a": 1, "b": 1, "c": 1, "news": 4})
    first = config(
        output=str(tmp_path / "first"),
        **{"schedule.steps": 9, "checkpoint.every": 3, "checkpoint.keep_last": 9},
    )
    second = config(
        name="second", output=str(tmp_path / "second"), init_from={"run": first["output"], "step": 6},
        **{"data.shards": crawl.url, "data.weights": {"news": 1}, "data.replay": {"run": first["output"], "share": 0.25},
           "schedule.steps": 8, "data.packing": "best_fit", "data.sequence_ramp": {4: 12}},
    )  # fmt: skip
    third = config(
        name="third", output=str(tmp_path / "third"), init_from=second["output"], **{"schedule.steps": 5, "data.packing": "best_fit"}
    )  # fmt: skip
    for settings in (first, second, third):
        run(settings)
    return [first["output"], second["output"], third["output"]]


def invoke(*arguments: str) -> str:
    done = CliRunner().invoke(build(), arguments)
    assert not done.exit_code, done.output
    return done.stdout


def recounted(folder: str, step: int) -> Counter[tuple[str, str]]:
    """Labels of each (document, source) in the batches of a run, from `describe_batch`."""
    config, _ = open_run(folder)
    config = of_run(config)
    shards, found = open_run_data(config), Counter[tuple[str, str]]()
    for number in range(1, step + 1):
        for row in describe_batch(config, number)["sequences"]:
            source = shards.train[row["source"]]
            names = [block.key for _, block in source.blocks]
            blocks = Blocks([source])
            key = (0, names.index(row["block"]))
            data, about = blocks.get([key])[key], blocks.documents(key)
            blocks.close()
            for low, high in row["tokens"]:
                for token in range(low, high):
                    at = int(np.searchsorted(data.starts, token, side="right")) - 1
                    found[about.doc_ids[at], row["source"]] += 1
    return found


def test_documents_and_sources_equal_a_recount_from_batches(chain: list[str]) -> None:
    counted = count(*open_run(chain[-1]))
    assert [(one.part.config.name, one.part.step) for one in counted] == [
        ("tiny", 6),
        ("second", 8),
        ("third", 5),
    ]
    recounts = [recounted(folder, step) for folder, step in zip(chain, (6, 8, 5), strict=True)]
    table = documents(counted).to_pylist()
    every = dict.fromkeys(doc for found in recounts for doc, _ in found)
    assert sorted(row["doc_id"].hex() for row in table) == sorted(every)
    for row in table:
        name = row["doc_id"].hex()
        by_phase = [sum(n for (doc, _), n in found.items() if doc == name) for found in recounts]
        assert row["by_phase"] == by_phase and row["drawn"] == sum(by_phase), name
        assert row["times"] == pytest.approx(row["drawn"] / row["tokens"])
    result = exposure(counted)
    for number, found in enumerate(recounts):
        assert result.phases[number].tokens == sum(found.values())
        by_source = Counter[str]()
        for (_, source), n in found.items():
            by_source[source] += n
        for row in result.sources:
            assert row.tokens[number] == sum(by_source[name] for name in row.names)
    # The data that the second run replayed and the third read is the first run's, and one row.
    assert {tuple(row.names) for row in result.sources} == {("wiki",), ("books",), ("code",), ("news",)}
    wiki = next(row for row in result.sources if row.names == ["wiki"])
    assert all(wiki.tokens) and sum(wiki.epochs) == pytest.approx(
        sum(one.sequences[0].total for one in (counted[0], counted[2])) / counted[0].part.plan.sources[0].sequences.total
        + counted[1].sequences[[s.name for s in counted[1].part.plan.sources].index("wiki")].total
        / counted[0].part.plan.sources[0].sequences.total
    )  # fmt: skip


def test_the_command(chain: list[str], tmp_path: Path) -> None:
    file = tmp_path / "seen.parquet"
    result = json.loads(invoke("exposure", chain[1], "--documents", str(file), "--json"))
    assert [one["name"] for one in result["phases"]] == ["tiny", "second"]
    table = pq.read_table(file)
    doc = table["doc_id"][0].as_py().hex()
    shown = invoke("exposure", chain[1], "--doc", doc)
    assert f"{doc} ({table['source'][0].as_py()}): {table['times'][0].as_py():.2f} times" in shown
    with pytest.raises(UserError, match="must be a document's id"):
        of_document(table, "xyz")
    with pytest.raises(UserError, match="no batch of any phase"):
        of_document(table, "0" * 32)


def test_a_missing_link_is_named(chain: list[str]) -> None:
    phase = Folder(chain[1]) / PHASE
    phase.write(phase.read().replace(b"../first", b"../gone"))
    config, folder = open_run(chain[1])
    assert config.start is not None
    moved = config.model_copy(
        update={"init_from": config.start.model_copy(update={"run": chain[0] + "-gone"})}
    )
    assert len(phases(config, folder)) == 2  # where its config has it
    with pytest.raises(UserError, match=r"names the run ../gone, which is not there"):
        phases(moved, folder)
