"""`corpusmill checkpoint list | verify | reshard`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from corpusmill.train.commands.options import Json, Run, print_json, print_table

if TYPE_CHECKING:
    from corpusmill.common.storage import Folder
    from corpusmill.train.checkpoint.store import Checkpoint, Listing

Step = Annotated[int | None, typer.Option(help="only the checkpoint of this step")]
RUN = "runs/quickstart/train"

app = typer.Typer(no_args_is_help=True, help="The checkpoints of a run: list, verify, rewrite.")


@app.command("list", epilog=f"Example: corpusmill checkpoint list {RUN}")
def list_(run: Run, json_: Json = False) -> None:
    """Checkpoints of a run, and whether each is complete."""
    folder = _folder(run)
    rows = [_row(folder, step) for step in _steps(folder)]
    if json_:
        print_json({"run": folder.url, "checkpoints": rows})
        return
    lines = [["step", "files", "MB", "tensors", "whole"]]
    for row in rows:
        lines.append(
            [f"{row['step']:,}", str(row["files"]), f"{row['bytes'] / 1e6:,.1f}", str(row["tensors"]), row["problem"] or "yes"]
        )  # fmt: skip
    print_table(lines, f"{folder}: sizes and tables are as published; `verify` reads every byte")


@app.command(epilog=f"Example: corpusmill checkpoint verify {RUN} --step 300")
def verify(run: Run, step: Step = None, json_: Json = False) -> None:
    """Hash every file of the checkpoints; name each that is not as published."""
    from corpusmill.common.errors import UserError, WorkError
    from corpusmill.schemas.manifest import MANIFEST
    from corpusmill.train.checkpoint.store import bad_files, folder_of

    folder = _folder(run)
    problems, notes, files, size = list[str](), list[str](), 0, 0
    there = _steps(folder)
    if step is not None and step not in there:
        raise UserError(f"--step {step}: no such checkpoint; there are {', '.join(map(str, there))}")
    for number in there if step is None else [step]:
        place = folder_of(folder, number)
        if step is None and MANIFEST not in there[number]:
            notes.append(f"{place}: not finished, it has no {MANIFEST}")
            continue
        found = bad_files(folder, number)
        problems += [f"{place}: {line}" for line in found.problems]
        files, size = files + found.files, size + found.bytes
    if json_:
        print_json({"run": folder.url, "files": files, "bytes": size, "notes": notes, "problems": problems})
    else:
        for note in notes:
            typer.echo(f"note: {note}")
        typer.echo(f"{files} files, {size / 1e6:,.1f} MB: {len(problems)} problems")
    if problems:
        raise WorkError("\n".join(problems))


@app.command(epilog=f"Example: corpusmill checkpoint reshard {RUN} runs/one-file --files 1")
def reshard(
    run: Run,
    out: Annotated[
        str, typer.Argument(metavar="OUT", help="folder or URL to write; it becomes a run's folder")
    ],
    files: Annotated[
        int | None, typer.Option(min=1, help="files for the model, and for the optimizer; default 1")
    ] = None,
    max_bytes: Annotated[
        int | None, typer.Option(min=1, help="maximum bytes of a file; one tensor may exceed it")
    ] = None,
    step: Step = None,
    json_: Json = False,
) -> None:
    """Rewrite the newest checkpoint into another number of files."""
    from corpusmill.common.errors import UserError
    from corpusmill.common.storage import Folder
    from corpusmill.train.tools.reshard import reshard as work

    if files and max_bytes:
        raise UserError("--files and --max-bytes: give one of them")
    folder, into = _folder(run), Folder(out)
    found = _newest(folder, step)
    names = work(found, into, files, max_bytes)
    for entry in folder.list():  # what a run's folder needs beside it
        if entry.path in ("config.json", "plan.json", "tokenizer.json", "journal.jsonl"):
            (into / entry.path).write((folder / entry.path).read())
    if json_:
        print_json({"output": into.url, "step": found.step, "files": names})
    else:
        typer.echo(f"{into}: step {found.step:,} in {len(names)} files")


def _folder(run: str) -> Folder:
    from pathlib import Path

    from corpusmill.common.storage import Folder
    from corpusmill.train.run_folder import open_run

    is_config = run.endswith((".yaml", ".yml")) or Path(run).is_file()
    return open_run(run)[1] if is_config else Folder(run)


def _steps(folder: Folder) -> dict[int, Listing]:
    from corpusmill.common.errors import UserError
    from corpusmill.train.checkpoint.store import steps

    found = steps(folder)
    if not found:
        raise UserError(
            f"{folder}: no checkpoints there; name a run's folder, which holds checkpoints/step-*/"
        )
    return found


def _newest(folder: Folder, step: int | None) -> Checkpoint:
    from corpusmill.train.evaluate.splits import checkpoint_at

    _steps(folder)
    return checkpoint_at(folder, step)


def _row(folder: Folder, step: int) -> dict[str, Any]:
    from corpusmill.train.checkpoint.store import Damaged, open_step

    try:
        found = open_step(folder, step)
    except (Damaged, FileNotFoundError) as error:
        return {"step": step, "files": 0, "bytes": 0, "tensors": 0, "problem": str(error)}
    files, size = found.manifest.files, sum(file.bytes for file in found.manifest.files)
    return {"step": step, "files": len(files), "bytes": size, "tensors": len(found.table), "problem": None}
