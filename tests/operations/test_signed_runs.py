"""A signature of a run's record covers every byte of the run, and whatever rewrites files signs again or says that it did not."""

# ruff: noqa: F811 (fixtures come by import, and arguments have their names)
from __future__ import annotations

import base64
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from corpusmill.__main__ import build
from corpusmill.common.config import load
from corpusmill.common.errors import UserError
from corpusmill.common.ids import checksum, sha256
from corpusmill.common.signing import KEY, public_key, signer
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.progress import Progress
from corpusmill.pipeline.engine.runner import Run
from corpusmill.pipeline.inspect.verify import verify
from corpusmill.schemas.manifest import RecordSignature, RunRecord, StageManifest
from corpusmill.schemas.recipe import Recipe
from tests.command_line import CliRunner
from tests.conftest import Serial
from tests.faults.shards import changed, kept, run, small, take  # noqa: F401 (fixtures)

SEED = base64.b64encode(bytes(range(32))).decode()


def again(run: Path, *settings: str) -> list[str]:
    """Run the recipe of the copy once more; what is logged."""
    lines: list[str] = []
    progress = Progress(quiet=True)
    progress.log = lines.append  # type: ignore[method-assign]
    recipe = RunRecord.model_validate_json((run / "manifest.json").read_bytes()).recipe
    file = run.with_suffix(".yaml")
    file.write_text(json.dumps({**recipe, "output": str(run)}))
    Run(load(Recipe, str(file), list(settings)), Folder(run), Serial(), progress).execute()
    return lines


@pytest.fixture
def signed(run: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that was signed afterwards, in an environment that has the key."""
    monkeypatch.setenv(KEY, SEED)
    again(run)
    return run


def key() -> str:
    found = signer()
    assert found is not None
    return found.public_key


def problems(run: Path, public: str = "") -> list[str]:
    return verify(Folder(run), sample=0, public_key=public).problems


def test_a_signed_run(signed: Path, tmp_path: Path) -> None:
    """Whoever has the public key can check it, with our command or with openssl."""
    found = verify(Folder(signed), sample=0, public_key=key())
    assert (found.problems, found.notes, found.signed_by) == ([], [], key())
    unchecked = verify(Folder(signed), sample=0)
    assert (
        unchecked.problems == [] and unchecked.signed_by == "" and "signed, not checked" in unchecked.notes[0]
    )
    result = CliRunner().invoke(build(), ["verify", str(signed), "--sample", "0", "--public-key", key()])
    assert result.exit_code == 0 and f"signed by {key()}" in result.output and SEED not in result.output
    signature = RecordSignature.model_validate_json((signed / "manifest.sig").read_bytes())
    (tmp_path / "sig").write_bytes(base64.b64decode(signature.signature))
    spki = bytes.fromhex("302a300506032b6570032100") + base64.b64decode(key())
    (tmp_path / "public.der").write_bytes(spki)
    command = ["openssl", "pkeyutl", "-verify", "-pubin", "-keyform", "DER", "-inkey", str(tmp_path / "public.der"), "-rawin",
               "-in", str(signed / "manifest.json"), "-sigfile", str(tmp_path / "sig")]  # fmt: skip
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    assert not any(
        SEED in file.read_bytes().decode("latin-1") for file in signed.rglob("*") if file.is_file()
    )


def forged(run: Path, path: str, data: bytes) -> None:
    """Other bytes for a file of `split`, with every checksum above it: what someone who can write may do."""
    (run / path).write_bytes(data)
    manifest = StageManifest.model_validate_json((run / "split/manifest.json").read_bytes())
    update = {"bytes": len(data), "xxh3": checksum(data), "sha256": sha256(data)}
    files = [f.model_copy(update=update) if path == f"split/{f.path}" else f for f in manifest.files]
    new = manifest.model_copy(update={"files": files}).to_json()
    (run / "split/manifest.json").write_bytes(new)
    record = RunRecord.model_validate_json((run / "manifest.json").read_bytes())
    sums = record.checksums | {"split/manifest.json": sha256(new)}
    (run / "manifest.json").write_bytes(record.model_copy(update={"checksums": sums}).to_json())


def test_what_only_a_signature_shows(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = "split/split.json"
    data = (run / path).read_bytes()
    forged(run, path, data + b" ")
    assert problems(run) == []  # every checksum fits
    forged(run, path, data)
    monkeypatch.setenv(KEY, SEED)
    again(run)
    forged(run, path, data + b" ")
    (problem,) = problems(run, key())
    assert problem.startswith(f"{run}/manifest.sig: not a signature of {run}/manifest.json")


def test_signatures_that_are_missing_or_of_others(signed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = key()
    monkeypatch.setenv(KEY, base64.b64encode(bytes(32)).decode())
    other = key()
    (problem,) = problems(signed, other)
    assert f"signed by {mine}, not by the key that is given, {other}" in problem
    again(signed)  # signed by the other
    assert problems(signed, other) == [] and len(problems(signed, mine)) == 1
    changed(signed / "manifest.sig", lambda data: data.__setitem__(-20, data[-20] ^ 1))
    assert len(problems(signed)) == 1
    (signed / "manifest.sig").unlink()
    (problem,) = problems(signed)
    assert problem.startswith(f"{signed}/manifest.sig: missing, but ")


def test_no_signature_where_one_is_wanted(run: Path) -> None:
    (problem,) = problems(run, public_key("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="))
    assert problem == f"{run}/manifest.json: not signed, but a public key is given"


def test_a_wrong_key_stops_a_run_before_it_begins(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, "mistyped")
    with pytest.raises(UserError, match=f"{KEY}: no ed25519 private key"):
        again(run)


def test_without_the_key_a_signature_goes_with_what_it_signed(
    signed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    public = key()
    monkeypatch.delenv(KEY)
    assert again(signed) == [] and problems(signed, public) == []  # nothing has changed
    (signed / "split/split.json").unlink()
    lines = again(signed)
    assert any("is no longer signed" in line and KEY in line for line in lines)
    assert problems(signed) == [] and not (signed / "manifest.sig").exists()


@pytest.mark.parametrize("has_key", [True, False])
def test_a_takedown_updates_the_record(signed: Path, monkeypatch: pytest.MonkeyPatch, has_key: bool) -> None:
    public = key()
    if not has_key:
        monkeypatch.delenv(KEY)
    before = json.loads((signed / "manifest.json").read_bytes())["checksums"]
    take(signed, [kept(signed)[0]["doc_id"].hex()])
    after = json.loads((signed / "manifest.json").read_bytes())["checksums"]
    assert [path for path in after if after[path] != before[path]] == ["shards/manifest.json"]
    assert problems(signed, public if has_key else "") == []
    assert (signed / "manifest.sig").exists() == has_key


def test_the_report_written_again(signed: Path) -> None:
    result = CliRunner().invoke(build(), ["report", str(signed), "-q"], catch_exceptions=False)
    assert result.exit_code == 0 and problems(signed, key()) == []
    assert "report/manifest.json" in json.loads((signed / "manifest.json").read_bytes())["checksums"]


def test_a_stages_command(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, SEED)
    out = tmp_path / "out"
    arguments = ["dedup", str(small / "web.jsonl"), str(out), "--workers", "0", "-q"]
    assert CliRunner().invoke(build(), arguments, catch_exceptions=False).exit_code == 0
    assert problems(out, key()) == [] and (out / "run.sig").exists()
    shutil.move(out, tmp_path / "moved")
    assert problems(tmp_path / "moved", key()) == []


def manifest(run: Path, path: str, change: Any) -> None:
    file = run / path
    content = json.loads(file.read_bytes())
    change(content)
    file.write_bytes((json.dumps(content, indent=1) + "\n").encode())


def test_a_damaged_manifest_is_not_taken_over(run: Path) -> None:
    """The next run makes again what a changed manifest describes, and does not put its checksum on record."""
    split = (run / "split/manifest.json").read_bytes()
    manifest(run, "split/manifest.json", lambda content: content["counters"].update(validation_groups=999))
    part = sorted((run / "dedup/parts").iterdir())[0].relative_to(run).as_posix()
    manifest(run, part, lambda content: content.update(seconds=999.0))
    assert len(problems(run)) == 2
    again(run)
    assert problems(run) == []
    counters = json.loads((run / "split/manifest.json").read_bytes())["counters"]
    assert counters == json.loads(split)["counters"]
