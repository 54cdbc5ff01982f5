"""One corpus, one result: for any cut into partitions, any order, any number of ranges, kills and damage."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from corpusmill.common.errors import WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup.lines import line_deduplication as run_module
from corpusmill.pipeline.dedup.lines import line_kernels, line_steps
from corpusmill.pipeline.engine.cluster import Workers
from corpusmill.pipeline.engine.progress import Progress
from corpusmill.schemas.dedup import LineParams
from corpusmill.schemas.recipe import Cluster
from tests.conftest import Serial
from tests.pipeline.dedup.helpers import Doc
from tests.pipeline.dedup.lines import reference
from tests.pipeline.dedup.lines.corpus import Found, run
from tests.pipeline.dedup.vandal import Dying, Mortal, Vandal, contents, damage_some, refuse, until_it_lives

LINE = LineParams(min_words=1)
PARAGRAPH = LineParams(unit="paragraph", min_words=1)
C4 = LineParams(unit="sentences", min_words=1)
SOURCES = ["books", "code", "web"]


@pytest.fixture(scope="module")
def corpus() -> list[Doc]:
    """120 documents of lines and paragraphs and sentences that many of them share, short and empty ones."""
    generator = random.Random(3)
    words = [f"w{i}" for i in range(60)]
    sentences = [" ".join(generator.choices(words, k=generator.randint(1, 6))) + "." for _ in range(90)]
    sentences += ["漢字の文。", "«Été», 12!", "menu", "*** ***"]
    texts = []
    for _ in range(115):
        blocks = []
        for _ in range(generator.randint(1, 4)):
            chosen = generator.choices(sentences, k=generator.randint(1, 5))
            first = generator.randrange(len(sentences) - 4)
            chosen += sentences[first : first + generator.choice([0, 3, 4])]
            blocks.append(generator.choice([" ", "\n", " "]).join(chosen))
        texts.append(generator.choice(["\n\n", "\n", "\n \n"]).join(blocks))
    texts += ["", "", "\n", "menu", "menu"]
    return [Doc(text, f"f{i}", generator.choice(SOURCES)) for i, text in enumerate(texts)]


@pytest.mark.parametrize("params", [LINE, PARAGRAPH, C4], ids=lambda p: p.unit)
def test_any_partitions_order_and_ranges(
    corpus: list[Doc], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, params: LineParams
) -> None:
    expected = run(Folder(tmp_path / "3"), corpus, params, 3)
    assert expected.counters["lines_cut"] > 10 and expected.counters["most_repeated_line"] > 2
    assert expected.texts == {
        i: t for i, t in reference.deduplicated(corpus, params, {}, None).items() if i not in expected.removed
    }

    def same(found: Found) -> None:
        assert found.spans.equals(expected.spans) and found.counters == expected.counters

    for count in (1, 2, 7):
        same(run(Folder(tmp_path / f"{count}"), corpus, params, count))
    same(run(Folder(tmp_path / "o"), corpus, params, 4, shuffle=1, scheduler=Serial(reverse=True)))
    monkeypatch.setattr(line_steps, "RECORD_BYTES", 1 << 14)
    monkeypatch.setattr(run_module, "TEXT_PER_UNIT", 320)
    many = run(Folder(tmp_path / "r"), corpus, params, 4, memory_mb=1)
    same(many)
    names = {
        entry.path for entry in (many.folder / "scratch/lines/compare/00").list() if ".lost" in entry.path
    }
    if params is LINE:
        assert any(not name.startswith("000000") for name in names), "several ranges"
        assert any(name.endswith("-001.lost") for name in names), "of several shares"


def test_texts_that_were_cut_need_no_kernel_of_their_own(
    corpus: list[Doc], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numba compiles another one for arrays that can be written to."""
    scan, seen = line_kernels.scan, []

    def recorded(offsets: Any, data: Any, *rest: Any) -> Any:
        seen.append((offsets.flags.writeable, data.flags.writeable))
        return scan(offsets, data, *rest)

    monkeypatch.setattr(line_kernels, "scan", recorded)
    run(Folder(tmp_path), corpus, C4)
    assert len(seen) > 2 and set(seen) == {(False, False)}


def published(found: Found) -> dict[str, bytes]:
    return {file.path: (found.folder / file.path).read() for file in found.files}


@pytest.mark.parametrize("params", [LINE, C4], ids=lambda p: p.unit)
def test_killed_at_any_task(corpus: list[Doc], tmp_path: Path, params: LineParams) -> None:
    serial = Serial()
    expected = run(Folder(tmp_path / "whole"), corpus, params, 3, scheduler=serial)
    found, kills = until_it_lives(
        lambda tasks: run(Folder(tmp_path / "killed"), corpus, params, 3, scheduler=Dying(tasks)), range(200)
    )
    assert kills == len(serial.labels)
    assert published(found) == published(expected) and found.counters == expected.counters


def test_killed_inside_any_write(corpus: list[Doc], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = run(Folder(tmp_path / "whole"), corpus, LINE, 2)
    root = Folder(tmp_path / "killed")
    mortal = Mortal(monkeypatch, spared=root / "in")
    lives = [number % 3 for number in range(100)]
    found, kills = until_it_lives(mortal.living(lambda: run(root, corpus, LINE, 2)), lives)
    assert kills > 5
    assert published(found) == published(expected) and found.counters == expected.counters


def test_finished_steps_are_not_run_again(
    corpus: list[Doc], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = run(Folder(tmp_path), corpus, C4, 3)

    for name in ("_units", "_compare", "_mark", "_publish"):
        monkeypatch.setattr(line_steps, name, refuse)
    assert published(run(Folder(tmp_path), corpus, C4, 3)) == published(expected)
    for other in ({"params": LINE}, {"docs": corpus[1:]}, {"priority": {"web": 1}}, {"only": ["web"]}):
        arguments: dict[str, Any] = {"docs": corpus, "params": C4, "count": 3, **other}
        with pytest.raises(AssertionError, match="done before"):
            run(Folder(tmp_path), **arguments)


@pytest.mark.parametrize("seed", range(4))
def test_damaged_and_missing_intermediates_are_made_again(
    corpus: list[Doc], tmp_path: Path, seed: int
) -> None:
    root = Folder(tmp_path)
    expected = published(run(root, corpus, C4, 3))
    scratch = root / "dedup/scratch"
    before = contents(scratch)
    damage_some(scratch, 6, seed)
    assert contents(scratch) != before
    assert published(run(root, corpus, C4, 3)) == expected
    assert contents(scratch) == before


@pytest.mark.parametrize(
    ("step", "path"),
    [
        ("units", "units/00/000001.units"),
        ("repeats", "compare/00/000000-000.lost"),
        ("spans to cut", "mark/00/000001.spans"),
    ],
)
def test_damage_during_the_run_is_noticed_and_mended(
    corpus: list[Doc], tmp_path: Path, step: str, path: str
) -> None:
    root = Folder(tmp_path / "damaged")
    with pytest.raises(WorkError, match="its bytes changed"):
        run(
            root, corpus, C4, 3, scheduler=Vandal(root / "dedup/scratch/lines" / path, f"dedup lines: {step}")
        )
    expected = run(Folder(tmp_path / "whole"), corpus, C4, 3)
    assert published(run(root, corpus, C4, 3)) == published(expected)


@pytest.mark.slow
@pytest.mark.usefixtures("forked_workers")
def test_on_dask_workers(corpus: list[Doc], tmp_path: Path) -> None:
    expected = run(Folder(tmp_path / "here"), corpus, C4, 3)
    with Workers(Cluster(workers=2), progress=Progress(quiet=True)) as workers:
        found = run(Folder(tmp_path / "there"), corpus, C4, 3, scheduler=workers)
    assert published(found) == published(expected) and found.counters == expected.counters
