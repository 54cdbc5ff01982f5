"""`corpusmill verify` on a finished run of which one file is damaged: a problem that names it, for every file and every damage,
and never an exception."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import random
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corpusmill.__main__ import build
from corpusmill.common.config import load
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.runner import Run
from corpusmill.pipeline.inspect.verify import Verified, verify
from corpusmill.schemas.recipe import Recipe
from tests.command_line import CliRunner
from tests.conftest import Serial, shared
from tests.e2e.cli import EXAMPLES
from tests.operations.mutations import CHANGES, RARE, linked, put, relinked, sibling

RECIPE = """\
name: tiny
output: {folder}/run
seed: 7
sources:
  books: {{paths: [{folder}/books]}}
  pages: {{paths: [{folder}/pages.jsonl], id_column: id}}
stages: [ingest, filter, decontaminate, dedup, redact, split, tokenizer, shard, report]
ingest: {{partition_mb: 0.02}}
filter: {{rules: [gopher_quality]}}
decontaminate: {{against: [{folder}/test.jsonl], action: cut}}
dedup: {{lines: {{}}, store_signatures: true, planted: 20}}
split: {{validation_share: 0.2, min_documents: 1}}
tokenizer: {{vocab_size: 400, sample_mb: 1}}
shard: {{block_tokens: 4096, shard_mb: 1, format: both}}
report: {{samples: 1}}
"""
SUBSET = 150
TOGETHER = 6  # data files, at least, that are damaged at once


def write_inputs(folder: Path) -> None:
    """Four chapters; speeches of which two are copies, with a header line that all have, and one that holds a test question."""
    (folder / "books").mkdir()
    for file in sorted(
        (EXAMPLES / "books").rglob("*.txt"), key=lambda file: (file.stat().st_size, file.name)
    )[:4]:
        shutil.copy(file, folder / "books")
    with gzip.open(EXAMPLES / "speeches/sotu.jsonl.gz", "rt") as source:
        text = json.loads(next(source))["text"]
    pieces = [text[at : at + 2500] for at in range(0, 20_000, 2500)]
    pieces += pieces[:2]
    with (folder / "pages.jsonl").open("w") as out:
        for number, piece in enumerate(pieces):
            page = f"Papers of the office, kept for all\n{piece}\nwrite to someone@example.com"
            out.write(json.dumps({"id": f"p{number}", "text": page}) + "\n")
    question = " ".join(pieces[3].split()[20:50])
    (folder / "test.jsonl").write_text(json.dumps({"question": question, "answer": "yes"}) + "\n")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with a file of every kind; not to be written to."""

    def make(folder: Path) -> None:
        write_inputs(folder)
        (folder / "tiny.yaml").write_text(RECIPE.format(folder=folder))
        Run(load(Recipe, str(folder / "tiny.yaml"), []), Folder(folder / "run"), Serial()).execute()

    return shared(tmp_path_factory, "verified", make) / "run"


def paths_of(run: Path) -> list[str]:
    return sorted(file.relative_to(run).as_posix() for file in run.rglob("*") if file.is_file())


def checked(copy: Path) -> Verified:
    return verify(Folder(copy), sample=0)


def lines_of(found: Verified) -> list[str]:
    return [*found.problems, *found.notes]


def sound(found: Verified) -> bool:
    """What makes the command's exit code 0."""
    return not found.problems and not found.unfinished


def damaged(run: Path, copy: Path, path: str, kind: str) -> list[str]:
    """Damage a file of the copy; the files that are not the run's now."""
    draw = random.Random(f"{path} {kind}")
    if kind == "delete":
        (copy / path).unlink()
        return [path]
    if kind == "swap":
        other = sibling(run, path)
        if other is not None:
            put(copy / path, (run / other).read_bytes())
            put(copy / other, (run / path).read_bytes())
        return [path, other] if other is not None else []
    data = {**CHANGES, **RARE}[kind]((run / path).read_bytes(), draw)
    if data is not None:
        put(copy / path, data)
    return [] if data is None else [path]


KINDS = [*CHANGES, *RARE, "delete", "swap"]


def unreported(run: Path, copy: Path, *jobs: tuple[str, str]) -> str:
    """What is wrong with what `verify` says of some damaged files, each given with the kind of its damage; "" if nothing is.

    Of several, none of which may hide another, each needs a problem that begins with its name.
    """
    damages = [(job, damaged(run, copy, *job)) for job in jobs]
    try:
        found = checked(copy)
        for job, touched in damages:
            if touched and sound(found):
                return f"{job}: not reported; notes {found.notes}"
            if len(jobs) == 1:  # a stage whose manifest cannot be read is named by its folder
                names = [name for file in touched for name in (str(copy / file), f"{(copy / file).parent}:")]
                named = any(name in line for name in names for line in lines_of(found))
            else:
                named = any(line.startswith(f"{copy / file}:") for file in touched for line in found.problems)
            if touched and not named:
                return f"{job}: not named in {lines_of(found)}"
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return f"{jobs}: {type(error).__name__}: {error}"
    finally:
        for _, touched in damages:
            for file in touched:
                relinked(run, copy, file)
    return ""


@pytest.fixture
def copy(tiny: Path, tmp_path: Path) -> Path:
    return linked(tiny, tmp_path / "run")


def test_any_file_and_any_damage(tiny: Path, copy: Path) -> None:
    """A damage for each file, and more up to `SUBSET`; the slow test does all."""
    assert lines_of(checked(copy)) == []
    draw = random.Random(18)
    paths = paths_of(tiny)
    jobs = [(path, KINDS[at % len(KINDS)]) for at, path in enumerate(draw.sample(paths, len(paths)))]
    jobs += [(draw.choice(paths), draw.choice(KINDS)) for _ in range(SUBSET - len(jobs))]
    jobs += [(path, kind) for path in ("manifest.json", "inputs.json", "report.html") for kind in KINDS]
    assert [line for job in jobs if (line := unreported(tiny, copy, job))] == []
    assert lines_of(checked(copy)) == []


@pytest.mark.slow
def test_every_file_and_every_damage(tiny: Path, copy: Path) -> None:
    """Data files, by which no other is checked, several at once; a swap damages two already."""
    data = [path for path in paths_of(tiny) if not path.endswith(".json")]
    groups = [data[at :: len(data) // TOGETHER] for at in range(len(data) // TOGETHER)]
    jobs = [tuple((path, kind) for path in group) for kind in KINDS if kind != "swap" for group in groups]
    jobs += [((path, "swap"),) for path in data]
    jobs += [((path, kind),) for path in paths_of(tiny) if path not in data for kind in KINDS]
    assert {job for several in jobs for job in several} == set(itertools.product(paths_of(tiny), KINDS))
    assert [line for several in jobs if (line := unreported(tiny, copy, *several))] == []


# What stands in a file's place, and what `verify` says of it.
PLACES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "folder": (lambda file: file.mkdir(), "what is there is no file"),
    "pipe": (lambda file: os.mkfifo(file), "what is there is no file"),
    "link to itself": (lambda file: file.symlink_to(file.name), "Too many levels of symbolic links"),
    "link to nothing": (lambda file: file.symlink_to("nowhere"), "missing"),
    "endless": (lambda file: file.symlink_to("/dev/zero"), "what is there is no file"),
}  # fmt: skip
FILES = ["dedup/documents/*.parquet", "ingest/units/*.json", "shards/*/train/*.tar", "shards/*/train/*.idx", "shards/index.json",
         "shards/tokenizer.json", "split/split.json", "report.html", "inputs.json", "redact/parts/*.json"]  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_something_else_in_the_place_of_a_file(copy: Path, place: str) -> None:
    make, message = PLACES[place]
    files = [sorted(copy.glob(pattern))[0] for pattern in FILES]
    for file in files:
        file.unlink()
        make(file)
    found = checked(copy)
    for file in files:
        assert any(line.startswith(f"{file}: ") for line in found.problems), (file, found.problems)
    assert any(message in line for line in found.problems)


@pytest.mark.parametrize("path", ["manifest.json", "filter/manifest.json", "ledger/_manifest.json"])
def test_something_else_in_the_place_of_a_manifest(copy: Path, path: str) -> None:
    for make, _ in PLACES.values():
        (copy / path).unlink()
        make(copy / path)
        assert not sound(checked(copy))
        shutil.rmtree(copy / path) if (copy / path).is_dir() else (copy / path).unlink()
        (copy / path).touch()
    with (copy / path).open("r+b") as file:
        file.truncate(40 << 30)  # without any block on the disk
    assert any("no manifest is as large" in line or "not finished" in line for line in checked(copy).problems)


def test_links_that_lead_back_and_names_that_are_no_text(copy: Path) -> None:
    """All else is still checked."""
    os.close(os.open(os.fsencode(copy) + b"/caf\xe9", os.O_CREAT))
    (copy / "shards/up").symlink_to("..")
    (copy / "ingest/self").symlink_to("self")
    flipped = next((copy / "dedup/documents").iterdir())
    put(flipped, flipped.read_bytes()[:-1] + b"x")
    found = checked(copy)
    assert f"{copy}/shards/up: a link to a folder that it is in; delete it" in found.problems
    assert f"{flipped}: checksum differs from the published one" in found.problems
    assert any("1 file that no manifest names" in note and "caf\\xe9" in note for note in found.notes)


@contextmanager
def forbidden(place: Path, tmp_path: Path) -> Iterator[None]:
    """A block in which this process, also one of root, may not read a file or folder below `tmp_path`, but all others there."""
    above = [folder for folder in (tmp_path, *tmp_path.parents) if folder.stat().st_uid == os.getuid()]
    modes = [(folder, stat.S_IMODE(folder.stat().st_mode)) for folder in above]
    for folder, mode in modes:
        folder.chmod(mode | 0o055)
    mode = place.stat().st_mode
    place.chmod(0)
    if os.getuid() == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(os.getuid())
        place.chmod(mode)
        for folder, mode in modes:
            folder.chmod(mode)


@pytest.mark.parametrize("path", ["", "redact", "redact/manifest.json", "manifest.json"])
def test_what_may_not_be_read(copy: Path, tmp_path: Path, path: str) -> None:
    if (copy / path).is_file():
        put(copy / path, (copy / path).read_bytes())  # permissions are of a file, not of a link to it
    with forbidden(copy / path, tmp_path):
        found = checked(copy)
    assert not sound(found) and any(str(copy / path).rstrip("/") in line for line in found.problems)


def test_files_that_nothing_names(copy: Path) -> None:
    for number in range(12):
        (copy / f"ingest/notes-{number:02d}.txt").write_text("mine")
    found = checked(copy)
    assert found.problems == []
    (note,) = found.notes
    assert "12 files that no manifest names" in note and "ingest/notes-09.txt and 2 more" in note


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_json_of_any_shape(tiny: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """A value of a manifest, at any depth, is another one."""
    path = data.draw(st.sampled_from([path for path in paths_of(tiny) if path.endswith(".json")]))
    content = json.loads((tiny / path).read_bytes())
    place: Any = {"root": content}
    key: Any = "root"
    while isinstance(place[key], dict | list) and place[key] and data.draw(st.booleans()):
        place = place[key]
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
    new = data.draw(JSON)
    root: Any = new if key == "root" else content
    if key != "root":
        place[key] = new
    copy = linked(tiny, tmp_path_factory.mktemp("any") / "run")
    put(copy / path, json.dumps(root, indent=1).encode())
    assert not sound(checked(copy))


def test_the_exit_code_and_what_to_do(copy: Path) -> None:
    def ended(*options: str) -> tuple[int, str]:
        result = CliRunner().invoke(build(), ["verify", str(copy), "--sample", "0", *options])
        return result.exit_code, result.output + str(result.exception or "")

    assert ended()[0] == 0
    page = (copy / "report.html").read_bytes()
    put(copy / "report.html", page + b" ")
    code, output = ended()
    assert code == 1 and f"{copy}/report.html: checksum differs from that of {copy}/manifest.json" in output
    assert "to mend a run: delete the files named here, and give its command again" in output
    put(copy / "report.html", page)
    (copy / "manifest.json").unlink()
    code, output = ended()
    assert code == 1 and "not finished" in output
