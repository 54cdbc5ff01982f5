"""Text that expires: what still works on a run without it, what says why it does not, and what a changed recipe makes again. And
the search for originals in the shards of a run."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from corpusmill.common.storage import Folder
from corpusmill.pipeline.inspect.private import known_of_run, search
from corpusmill.pipeline.redact.known import Known, entries
from tests.e2e.cli import corpusmill
from tests.pipeline.corpus import contents
from tests.pipeline.redact.planted import write


def texts(run: Path) -> list[str]:
    """The stages that hold text."""
    return sorted({str(path.parent.parent.relative_to(run)) for path in run.glob("**/documents/*")})


@pytest.fixture(scope="module")
def expired(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A copy of a finished run without the text of its intermediate stages, and its output."""
    run = tmp_path_factory.mktemp("expired") / "run"
    shutil.copytree(finished, run)
    refused = corpusmill("expire", run, check=False)
    assert refused.returncode == 2 and "keeps all text (retain: all); give --now" in refused.stderr
    return run, corpusmill("expire", run, "--now").stderr


def test_a_run_without_intermediate_text_answers_and_says_what_is_gone(expired: tuple[Path, str]) -> None:
    run, printed = expired
    assert "expired: the text of ingest, filter, dedup" in printed
    assert texts(run) == ["redact"]
    done = corpusmill("verify", run)
    assert done.stdout.count("its text was deleted on purpose (corpusmill expire)") == 3
    assert "0 problems" in done.stdout and "documents of shards decoded" in done.stdout
    rows = pq.read_table(run / "ledger").to_pylist()
    kept = next(one for one in rows if one["outcome"] == "kept" and one["source"] == "books")
    document = kept["doc_id"].hex()
    assert json.loads(corpusmill("why", document, "--run", run, "--json").stdout)[0]["doc_id"] == document
    place = json.loads(corpusmill("find", document, "--run", run, "--json").stdout)["documents"][0]["places"][
        0
    ]
    assert place
    tar = next((run / "shards").glob("books/train/*.tar"))
    traced = corpusmill("trace", f"{tar.stem}:0:0-3", "--run", run)
    assert "ingest: its text was deleted on purpose (corpusmill expire)" in traced.stderr
    report = corpusmill("report", run)
    assert "no examples of ingest: its text was deleted on purpose (corpusmill expire)" in report.stderr
    assert not corpusmill("expire", run, "--now").stderr


def test_nothing_recognised_is_left_in_the_shards_of_a_run(finished: Path) -> None:
    done = corpusmill("verify", finished, "--private")
    assert re.search(r"\d+ files, .* searched: 0 originals left", done.stdout)


def test_what_stands_in_tokens_is_found(finished: Path) -> None:
    """A word of letters and digits that stands in a text is looked for as if it were an account."""
    words = re.compile(
        r"(?<![0-9A-Za-z])(?=[0-9A-Za-z]*[0-9])(?=[0-9]*[A-Za-z])[0-9A-Za-z]{9,30}(?![0-9A-Za-z])"
    )
    docs = pq.read_table(finished / "redact/documents", columns=["text"])["text"].to_pylist()
    word = next(match[0] for text in docs for match in words.finditer(text))
    known = Known.of(entries([("iban", word.encode())], bytes(16), ()), bytes(16))
    run = Folder(finished)
    found = search(run, known, [entry.path for entry in run.list() if entry.path.startswith("shards/")])
    assert found.skipped == [] and found.counts["iban"] >= 1
    assert all(".tokens.npy" in one.first for one in found.finds)


RECIPE = """\
name: mail
output: {folder}/run
sources: {{mail: {{paths: [{folder}/mail.jsonl], url_column: url}}}}
stages: [ingest, filter, redact, report]
ingest: {{partition_mb: 0.002}}
filter: {{rules: []}}
report: {{samples: 1}}
"""


def run(folder: Path, *settings: str, more: tuple[str, ...] = ()) -> Any:
    given = [word for setting in settings for word in ("--set", setting)]
    return corpusmill("run", folder / "recipe.yaml", "--workers", "0", *given, *more)


@pytest.fixture
def mail(tmp_path: Path) -> Path:
    write(tmp_path / "mail.jsonl", 30)
    (tmp_path / "recipe.yaml").write_text(RECIPE.format(folder=tmp_path))
    return tmp_path


def test_retain_none_and_what_changes_afterwards(mail: Path) -> None:
    first = run(mail, "retain=none")
    assert "expired: the text of ingest, filter" in first.stderr and texts(mail / "run") == ["redact"]
    before = contents(mail / "run/redact")
    again = run(mail, "retain=none")
    assert "nothing to do" in again.stderr and "expired" not in again.stderr
    plan = run(mail, "retain=none", "redact.fields=[]", more=("--dry-run",)).stdout
    assert re.search(r"ingest +RUN +its text is expired \(retain: none\), and ledger reads it", plan)
    run(mail, "retain=none", "redact.fields=[]", more=("--replace",))
    assert contents(mail / "run/redact/documents") != before and texts(mail / "run") == ["redact"]
    run(mail, "retain=none", more=("--replace",))
    for name, data in contents(mail / "run/redact").items():
        assert data == before[name] or name == "manifest.json" or name.startswith("parts/"), name
    assert "0 problems" in corpusmill("verify", mail / "run").stdout
    # The run now ends earlier: the stage that is its last one must have its text.
    run(mail, "retain=none", "stages=[ingest, filter, report]", more=("--replace",))
    assert (mail / "run/filter/documents").exists() and not (mail / "run/ingest/documents").exists()


def test_a_kill_within_an_expiry_loses_nothing(mail: Path) -> None:
    """Killed between two files, and between the marker and the first file."""
    run(mail)
    before = contents(mail / "run/redact")
    assert texts(mail / "run") == ["filter", "ingest", "redact"]
    marker = {
        "key": json.loads((mail / "run/ingest/manifest.json").read_text())["key"],
        "why": "retain: none",
    }
    (mail / "run/ingest/expired.json").write_text(json.dumps(marker))
    next((mail / "run/ingest/documents").iterdir()).unlink()
    assert "0 problems" in corpusmill("verify", mail / "run").stdout
    done = run(mail, "retain=none")
    assert "nothing to do" in done.stderr and texts(mail / "run") == ["redact"]
    assert contents(mail / "run/redact") == before


def test_days(mail: Path) -> None:
    run(mail, "retain=30")
    assert "nothing to delete" in corpusmill("expire", mail / "run").stdout
    assert texts(mail / "run") == ["filter", "ingest", "redact"]
    then = time.time() - 31 * 86_400
    os.utime(mail / "run/ingest/manifest.json", (then, then))
    assert "expired: the text of ingest, " in corpusmill("expire", mail / "run").stderr
    assert texts(mail / "run") == ["filter", "redact"]
    os.utime(mail / "run/filter/manifest.json", (then, then))
    assert "expired: the text of filter, " in run(mail, "retain=30").stderr  # a later run does it, too
    assert texts(mail / "run") == ["redact"]


def test_retain_is_checked(mail: Path) -> None:
    for value in ("some", "0", "-1", "1.5"):
        done = corpusmill(
            "run", mail / "recipe.yaml", "--set", f"retain={value}", "--workers", "0", check=False
        )
        assert done.returncode == 2 and "retain" in done.stderr and "Traceback" not in done.stderr


def test_the_set_of_a_run_is_below_its_redact(finished: Path) -> None:
    assert known_of_run(Folder(finished)) is not None
    names = {path.name for path in (finished / "redact/private").iterdir()}
    assert names == {"known.u64", "set.json"}
