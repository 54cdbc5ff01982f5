"""Input that is added, removed or changed: work for what differs, the bytes of a run from the beginning."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine import tasks
from corpusmill.pipeline.engine.runner import Run
from corpusmill.pipeline.filter.apply import Filtering
from corpusmill.pipeline.ingest.readers import jsonl
from corpusmill.pipeline.ingest.stage import Ingest, Unit
from corpusmill.pipeline.inspect.verify import verify
from corpusmill.schemas.recipe import Recipe
from tests.conftest import Serial
from tests.pipeline.filter.helpers import PROSE

FILES = 1000


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    for n in range(FILES):
        add(tmp_path / "in", f"{n % 10}/page-{n:04d}.txt", f"This is page {n}.\n{PROSE}")
    return tmp_path / "in"


def add(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


class Work:
    """Which files were read and how many partitions filtered since it was last asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.units: list[Unit] = []
        self.filtered = 0
        read, call = Ingest.read, Filtering.__call__

        def reading(stage: Ingest, unit: Unit) -> Iterator[Any]:
            self.units.append(unit)
            yield from read(stage, unit)

        def filtering(transform: Filtering, docs: pa.Table) -> Any:
            self.filtered += 1
            return call(transform, docs)

        monkeypatch.setattr(Ingest, "read", reading)
        monkeypatch.setattr(Filtering, "__call__", filtering)

    def since(self) -> tuple[int, int, int]:
        """(units, files in them, partitions filtered)."""
        found = (len(self.units), sum(len(unit.files) for unit in self.units), self.filtered)
        self.units, self.filtered = [], 0
        return found


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    return Work(monkeypatch)


def job(corpus: Path, run: Path, **source: Any) -> Run:
    config = {
        "name": "t", "stages": ["ingest", "filter"], "sources": {"web": {"paths": [str(corpus)], **source}},
        "ingest": {"partition_mb": 0.0625}, "filter": {"toxicity": None, "quality": None, "language": None},
    }  # fmt: skip
    tasks._stage.cache_clear()
    return Run(Recipe.model_validate(config), Folder(run), Serial(), replace=True)


def published(run: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(run)): file.read_bytes()
        for file in sorted(run.rglob("*"))
        if file.suffix == ".parquet" and file.is_file()
    }


def test_a_file_more_or_less_costs_a_file(corpus: Path, tmp_path: Path, work: Work) -> None:
    job(corpus, tmp_path / "run").execute()
    units, files, filtered = work.since()
    assert files == FILES and 25 < units < 200 and filtered >= units

    add(corpus, "4/page-0444b.txt", f"A new one.\n{PROSE}")
    job(corpus, tmp_path / "run").execute()
    units, files, filtered = work.since()
    assert 1 <= units <= 2 and files < FILES // 10 and 1 <= filtered <= 3
    fresh = job(corpus, tmp_path / "fresh").execute()
    work.since()
    assert published(tmp_path / "run") == published(tmp_path / "fresh")
    assert fresh[0].counts.kept == FILES + 1

    (corpus / "4/page-0444b.txt").unlink()
    (corpus / "7/page-0007.txt").unlink()
    manifests = job(corpus, tmp_path / "run").execute()
    units, files, filtered = work.since()
    assert 1 <= units <= 4 and filtered <= 6 and manifests[0].counts.kept == FILES - 1
    job(corpus, tmp_path / "again").execute()
    work.since()
    assert published(tmp_path / "run") == published(tmp_path / "again")
    locators = [
        row["locator"]
        for file in (tmp_path / "run/ledger").glob("*.parquet")
        for row in pq.read_table(file).to_pylist()
    ]
    assert len(locators) == FILES - 1 and "4/page-0444b.txt#0" not in locators
    markers = {file.stem for file in (tmp_path / "run/ingest/units").iterdir()}
    assert markers == {file.stem for file in (tmp_path / "again/ingest/units").iterdir()}
    verify(Folder(tmp_path / "run"))

    add(corpus, "5/page-0005.txt", f"Another text.\n{PROSE}")  # of the same name
    job(corpus, tmp_path / "run").execute()
    units, _, filtered = work.since()
    assert units == 1 and filtered == 1


def test_a_source_more_leaves_the_others(corpus: Path, tmp_path: Path, work: Work) -> None:
    job(corpus, tmp_path / "run").execute()
    work.since()
    add(tmp_path / "more", "a.txt", PROSE)
    run = job(corpus, tmp_path / "run")
    two = {**run.recipe.model_dump(mode="json")["sources"], "more": {"paths": [str(tmp_path / "more")]}}
    run.recipe = Recipe.model_validate(
        {**run.recipe.model_dump(mode="json", exclude_unset=True), "sources": two}
    )
    run.recipe_json = run.recipe.model_dump_json()
    run.execute()
    assert work.since() == (1, 1, 1)
    # Another option of one source is work for that source.
    one = {
        name: {**source, "encoding": "utf-8"} if name == "more" else source for name, source in two.items()
    }
    run.recipe = Recipe.model_validate(
        {**run.recipe.model_dump(mode="json", exclude_unset=True), "sources": one}
    )
    run.recipe_json = run.recipe.model_dump_json()
    run.execute()
    assert work.since()[:2] == (1, 1)


def test_units_neither_grow_nor_shrink_with_their_number(corpus: Path) -> None:
    units = Ingest(job(corpus, Path("/unused")).recipe).units()
    assert all(unit.size <= 65536 or len(unit.files) == 1 for unit in units)
    assert [file.path for unit in units for file in unit.files] == sorted(
        str(file.relative_to(corpus)) for file in corpus.rglob("*.txt")
    )
    assert len({unit.name for unit in units}) == len(units)


LINES = [json.dumps({"id": str(n), "text": f"Text {n}. {PROSE}"}) for n in range(200)]


def test_a_file_that_changed_after_the_plan(tmp_path: Path) -> None:
    add(tmp_path / "in", "a.jsonl", "\n".join(LINES[:100]) + "\n")
    run = job(tmp_path / "in", tmp_path / "run")
    planned = run.plan()
    with (tmp_path / "in/a.jsonl").open("a") as file:
        file.write("\n".join(LINES[100:]) + "\n")
    with pytest.raises(
        WorkError, match=r"sources\.web: a\.jsonl changed while it was read; run the command again"
    ):
        run.execute(planned)
    assert not (tmp_path / "run/ingest/manifest.json").exists()
    assert not list((tmp_path / "run").glob("ingest/units/*"))
    assert job(tmp_path / "in", tmp_path / "run").execute()[0].counts.kept == 200


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_a_file_that_changes_while_it_is_read(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the same size, and with the time of its last change set back."""
    path = tmp_path / "in" / name
    add(tmp_path / "in", name, "\n".join(LINES) + "\n")
    if name.endswith("parquet"):
        pq.write_table(pa.table({"text": LINES}), path, compression="none", use_dictionary=False)
    times = path.stat()
    run = job(tmp_path / "in", tmp_path / "run")
    planned = run.plan()

    def change() -> None:
        data = path.read_bytes()
        place = data.rindex(b"Text 199.")
        path.write_bytes(data[:place] + b"text 199." + data[place + 9 :])
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    if name.endswith("parquet"):
        change()
    else:
        original = jsonl.pieces

        def changing(*given: Any) -> Any:
            change()
            monkeypatch.setattr(jsonl, "pieces", original)
            return original(*given)

        monkeypatch.setattr(jsonl, "pieces", changing)
        monkeypatch.setattr("corpusmill.pipeline.ingest.streams.READ_BYTES", 1 << 14)
    with pytest.raises(WorkError, match="changed while it was read"):
        run.execute(planned)
