"""What redaction promises of a whole output: 300 people's data planted in text, URL, metadata and ids are nowhere left, whoever works
and whatever is killed; and a search by hash finds what was left on purpose."""

from __future__ import annotations

import gzip
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.inspect.private import known_of_run, search
from corpusmill.pipeline.redact.clean import Cleaner
from corpusmill.pipeline.redact.known import Known
from tests.conftest import IMPORT_PATH, shared
from tests.e2e.cli import corpusmill
from tests.pipeline.corpus import contents
from tests.pipeline.redact.planted import grouped, person, write

PEOPLE = 300
SETTINGS = ["sources.input.url_column=url", "redact.phone_regions=[US]", "ingest.partition_mb=0.01"]


def redact(folder: Path, out: str, *settings: str, workers: int = 0, check: bool = True) -> Any:
    given = [word for setting in [*SETTINGS, *settings] for word in ("--set", setting)]
    return corpusmill("redact", folder / "in", folder / out, "--workers", str(workers), *given, check=check)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A folder with the input, and its output in `out`; what may be left nowhere."""

    def make(folder: Path) -> None:
        values = write(folder / "in/mail.jsonl", PEOPLE)
        (folder / "values.json").write_text(json.dumps(values))
        done = redact(folder, "out")
        (folder / "log.txt").write_text(done.stderr)

    folder = shared(tmp_path_factory, "planted", make)
    return folder, json.loads((folder / "values.json").read_text())


def left(table: pa.Table, columns: list[str], values: list[str]) -> list[str]:
    """The planted values that stand in these columns, by plain search."""
    text = unquote(json.dumps(table.select(columns).to_pylist(), ensure_ascii=False)).lower()
    return [value for value in values if value in text]


def test_nothing_is_left_in_text_url_and_metadata(made: tuple[Path, list[str]]) -> None:
    folder, values = made
    before = json.dumps([json.loads(line) for line in (folder / "in/mail.jsonl").open()]).lower()
    assert all(value in before for value in values) and len(values) == 2 * PEOPLE
    docs = pq.read_table(folder / "out/documents")
    assert len(docs) == 2 * PEOPLE and len(list((folder / "out/documents").iterdir())) > 3
    assert left(docs, ["text", "url", "metadata"], values) == []
    assert all(isinstance(json.loads(text), dict) for text in docs["metadata"].drop_null().to_pylist())
    done = corpusmill("verify", folder / "out", "--private")
    assert "0 originals left" in done.stdout


def test_the_command_leaves_no_text_as_it_came_in(made: tuple[Path, list[str]]) -> None:
    folder, _ = made
    assert "expired: the text of ingest" in (folder / "log.txt").read_text()
    assert not (folder / "out/before/ingest/documents").exists()
    verified = corpusmill("verify", folder / "out")
    assert (
        "its text was deleted on purpose (retain: none)" in verified.stdout
        and "0 problems" in verified.stdout
    )
    rows = json.loads(corpusmill("why", "known-1", "--run", folder / "out", "--json").stdout)
    assert {edit["kind"] for edit in rows[0]["edits"]} == {"email", "phone"}
    assert "nothing to do" in redact(folder, "out").stderr


def test_what_is_left_on_purpose_is_counted(made: tuple[Path, list[str]]) -> None:
    folder, values = made
    redact(folder, "bare", "redact.fields=[]")
    done = corpusmill("verify", folder / "bare", "--private", check=False)
    assert done.returncode == 1
    assert "email left, first at row " in done.stderr
    assert not [value for value in values if value in (done.stdout + done.stderr).lower()]
    alone = redact(folder, "alone", "redact.everywhere=[]", "redact.fields=[]")
    assert alone.returncode == 0
    docs = pq.read_table(folder / "alone/documents")
    assert len(left(docs, ["text"], values)) == PEOPLE  # the bare numbers
    refused = corpusmill("verify", folder / "alone", "--private", check=False)
    assert refused.returncode == 2 and "redact.everywhere is []" in refused.stderr


def test_any_number_of_workers_and_a_kill_while_collecting_give_the_same_bytes(
    made: tuple[Path, list[str]],
) -> None:
    folder, _ = made
    wanted = contents(folder / "out/documents") | contents(folder / "out/private")
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    command = [
        sys.executable,
        "-m",
        "corpusmill",
        "redact",
        str(folder / "in"),
        str(folder / "killed"),
        "--workers",
        "2",
        *settings,
    ]
    process = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": IMPORT_PATH}, stderr=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, start_new_session=True)  # fmt: skip
    while process.poll() is None and not list(folder.glob("killed/scratch/private/*.u64")):
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not (folder / "killed/manifest.json").exists()
    redact(folder, "killed", workers=1)
    assert contents(folder / "killed/documents") | contents(folder / "killed/private") == wanted
    assert not (folder / "killed/scratch").exists()


@pytest.fixture
def known(made: tuple[Path, list[str]]) -> Known:
    found = known_of_run(Folder(made[0] / "out"))
    assert found is not None
    return found


def test_a_cleaned_publication_is_clean_in_every_column(
    made: tuple[Path, list[str]], known: Known, tmp_path: Path
) -> None:
    folder, values = made
    cleaner = Cleaner.of_run(Folder(folder / "out"))
    assert cleaner is not None
    docs, ledger = (pq.read_table(folder / f"out/{name}") for name in ("documents", "ledger"))
    assert left(docs, ["source_id"], values) and left(ledger, ["source_id", "url"], values)
    for name, table in (("documents", docs), ("ledger", ledger)):
        clean = cleaner.table(table)
        assert clean.schema == table.schema and len(clean) == len(table)
        assert clean["doc_id"] == table["doc_id"]
        assert left(clean, ["source_id", "url", "locator"], values) == []
        assert cleaner.table(clean) == clean
        pq.write_table(clean, tmp_path / f"{name}.parquet")
    lines = "".join(
        json.dumps(row) + "\n"
        for row in cleaner.table(docs).drop(["doc_id", "text_hash", "cluster_id"]).to_pylist()
    )
    (tmp_path / "documents.jsonl.zst").write_bytes(zstandard.compress(lines.encode()))
    found = search(Folder(tmp_path), known)
    assert (found.counts, found.skipped, found.files) == ({}, [], 3)
    # The same replacement as in the text, so that rows can still be matched.
    assert cleaner.text(f"x {person(4)['mail']}") == "x <EMAIL>"


def tar(members: dict[str, bytes]) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as file:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))
    return sink.getvalue()


def test_an_original_is_found_in_every_kind_of_file(
    made: tuple[Path, list[str]], known: Known, tmp_path: Path
) -> None:
    mail, phone = person(7)["mail"], person(7)["phone"]
    rows = pa.table({"id": ["a", "b"], "tags": [[], ["x", mail]], "about": [{"n": "x"}, {"n": phone}]})
    pq.write_table(rows, tmp_path / "rows.parquet")
    line = json.dumps({"text": f"a {mail}", "n": 1}) + "\n"
    files = {
        "a.jsonl": ("{}\n" + line).encode(), "b.jsonl.gz": gzip.compress(line.encode()), "c.jsonl.zst": zstandard.compress(line.encode()),
        "d.json": json.dumps({"u": f"https://x.org/?m={mail.replace('@', '%2540')}"}).encode(),
        "e.html": f"<p>{mail.replace('@', '&#64;')}</p>".encode(), "f.md": f"call {grouped(phone)}".encode(),
        "g.tar": tar({"0.txt": phone.encode(), "0.json": line.encode()}), "h.csv": f"id,{phone},x".encode(),
    }  # fmt: skip
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "i.txt").write_text(f"{phone}1 x{mail} nothing")  # another number, another address
    (tmp_path / "private").mkdir()
    (tmp_path / "private/set.json").write_bytes((made[0] / "out/private/set.json").read_bytes())
    found = search(Folder(tmp_path), known)
    assert found.skipped == []
    assert {one.file for one in found.finds} == {*files, "rows.parquet", "private/set.json"}
    by_file = {(one.file, one.kind): one for one in found.finds}
    assert by_file["rows.parquet", "phone"].count == 1 and by_file["a.jsonl", "email"].first == "line 2"
    assert (
        by_file["g.tar", "phone"].first == "member 0.txt"
        and by_file["private/set.json", "private_set"].count == 1
    )
    shown = repr(found.finds).lower()
    assert mail.lower() not in shown and phone not in shown


def test_a_file_that_cannot_be_searched_is_not_taken_for_clean(
    known: Known, tmp_path: Path, made: tuple[Path, list[str]]
) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and no more")
    (tmp_path / "b.jsonl.zst").write_bytes(b"no zstd")
    (tmp_path / "c.bin").write_bytes(b"tokens")
    (tmp_path / "d.dat").write_bytes(b"\0\1\2")
    assert [line.partition(":")[0] for line in search(Folder(tmp_path), known).skipped] == [
        "a.parquet",
        "b.jsonl.zst",
        "c.bin",
        "d.dat",
    ]
    done = corpusmill("verify", tmp_path, "--private", "--run", made[0] / "out", check=False)
    assert done.returncode == 1 and "c.bin: a format that is not searched (not searched)" in done.stderr


def test_a_run_without_redaction_has_no_set(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": "one"}\n')
    corpusmill("ingest", tmp_path / "in.jsonl", tmp_path / "out", "--workers", "0")
    assert known_of_run(Folder(tmp_path / "out")) is None and Cleaner.of_run(Folder(tmp_path / "out")) is None
    with pytest.raises(UserError, match="no finished run there"):
        known_of_run(Folder(tmp_path / "none"))
