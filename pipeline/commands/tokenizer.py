"""`corpusmill tokenizer`: a tokenizer from the user's own files; and `tokenizer compare`: kinds of tokenizers beside each other."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from typer.core import TyperCommand

from corpusmill.common.errors import UserError, nearest
from corpusmill.pipeline.commands.options import (
    IdColumn,
    InputFormat,
    Json,
    Quiet,
    Set,
    TextColumn,
    print_json,
    stage_command,
)
from corpusmill.pipeline.commands.rules import documents
from corpusmill.pipeline.commands.run import run_stage
from corpusmill.schemas.tokenizer import BYTES, Kind, TokenizerParams

if TYPE_CHECKING:
    from corpusmill.pipeline.engine.layout import Record
    from corpusmill.pipeline.tokenizer.compare.draw import Batch, Sample
    from corpusmill.pipeline.tokenizer.compare.measure import Models
    from corpusmill.schemas.tokenizer import SmallModel

KINDS: tuple[Kind, ...] = get_args(Kind)
COMPARE_EXAMPLE = "corpusmill tokenizer compare docs.jsonl --vocab 4096"
TOKENIZER_HELP = "`corpusmill tokenizer compare` trains kinds of tokenizers beside each other."
MIB = 1 << 20
SMALL_MODELS = "small_models"  # in the object of the command line: `corpusmill.small_models.small_models`


def _tokenizer(given: dict[str, Any]) -> None:
    if given["path"] is not None:
        from corpusmill.common.hugging_face import TRAIN, read_given

        read_given("--path", given["path"], TRAIN)
    everything = {"validation_share": 0.0, "min_documents": 0}  # every document is for training
    run_stage("tokenizer", given, {"split": everything})


tokenizer = stage_command(_tokenizer, TokenizerParams)


def compare(
    context: typer.Context,
    input: Annotated[
        list[str],
        typer.Argument(
            metavar="IN...",
            help="Files, folders, globs or URLs, each a source; or the folder of a finished run.",
        ),
    ],
    kinds: Annotated[
        str, typer.Option("--kinds", help=f"Which, with commas between: {', '.join(KINDS)}. [all]")
    ] = ",".join(KINDS),
    vocab: Annotated[
        int,
        typer.Option("--vocab", min=2 * BYTES + 1, max=1_000_000, help="Tokens of each vocabulary, at most."),
    ] = 4096,
    sample_mb: Annotated[float, typer.Option(min=0.001, help="Text to train on, MiB, at most.")] = 16.0,
    held_out_mb: Annotated[
        float, typer.Option(min=0.001, help="Text of each source to measure on, MiB, about.")
    ] = 1.0,
    train: Annotated[
        bool,
        typer.Option("--train", help="Train a small model with each, too: bits per byte at equal FLOPs."),
    ] = False,
    flops: Annotated[float, typer.Option(min=1e6, help="With --train: of each model's training.")] = 2e12,
    seed: Annotated[int, typer.Option(min=0, help="Of the choice of documents, and of the models.")] = 0,
    format: InputFormat = "auto",
    text_column: TextColumn = "text",
    id_column: IdColumn = None,
    set_: Set = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train kinds of tokenizers on one sample, and measure them on other documents."""
    from corpusmill.pipeline.engine.progress import Progress, explained
    from corpusmill.pipeline.tokenizer.compare.draw import draw
    from corpusmill.pipeline.tokenizer.compare.measure import compare as work
    from corpusmill.pipeline.tokenizer.compare.show import show

    chosen = chosen_kinds(kinds)
    progress = Progress(quiet=quiet or json)
    with explained("nothing was written: run the same command again"):
        record = _finished(input)
        if record is not None and set_:
            raise UserError(
                "--set: belongs to files that are still to be read; a finished run has its documents"
            )
        source = {"format": format, "text_column": text_column, "id_column": id_column}
        batches = _of_files(input, source, set_ or []) if record is None else _of_run(record)
        with progress.work("documents"):
            sample = draw(batches, seed, int(sample_mb * MIB), int(held_out_mb * MIB))
        with tempfile.TemporaryDirectory(prefix="corpusmill-") as folder:
            models = _models(context, flops, seed, Path(folder), quiet or json) if train else None
            found = work(sample, chosen, vocab, seed, progress.work, models)
    if json:
        print_json(found.model_dump(mode="json"))
    else:
        typer.echo(show(found))


def _models(context: typer.Context, flops: float, seed: int, folder: Path, quiet: bool) -> Models:
    """What trains the models, which the pipeline itself has nothing of: the program puts it into the context."""
    train = (context.obj or {}).get(SMALL_MODELS)
    if train is None:
        raise UserError("--train: there is no trainer in this program; use the command `corpusmill`")

    def models(sample: Sample, files: dict[Kind, bytes]) -> dict[Kind, SmallModel]:
        return dict(train(sample, files, flops, seed, folder, quiet))

    return models


def chosen_kinds(given: str) -> list[Kind]:
    """The kinds of a list with commas, each once. Raises `UserError` for another name."""
    names = list(dict.fromkeys(name for name in re.split(r"[\s,]+", given) if name))
    for name in names:
        if name not in KINDS:
            raise UserError(
                f"--kinds: '{name}' is not one{nearest(name, KINDS)} (allowed: {', '.join(KINDS)})"
            )
    if not names:
        raise UserError(f"--kinds: give one or more of {', '.join(KINDS)}")
    return [kind for kind in KINDS if kind in names]


def _finished(input: list[str]) -> Record | None:
    """The record of the finished run that the input is; None if it is files."""
    from corpusmill.common.storage import Folder
    from corpusmill.pipeline.engine.layout import read_record

    if len(input) > 1 or re.search(r"[*?\[]|^(?:hf|https?)://", input[0]) or Path(input[0]).is_file():
        return None
    return read_record(Folder(input[0]))


def _of_run(record: Record) -> Iterator[Batch]:
    """The final documents of a run, and which its split took for validation."""
    from corpusmill.pipeline.engine.document_hash import read_validation_groups, split_of
    from corpusmill.pipeline.engine.planned import partitions_of
    from corpusmill.pipeline.tokenizer.compare.draw import COLUMNS, Batch
    from corpusmill.schemas.recipe import is_local

    manifests = record.manifests()
    folders = {one.stage: one.folder for one in record.stages}
    last = [one.stage for one in record.stages if is_local(one.stage)][-1]
    groups = read_validation_groups(folders["split"]) if "split" in folders else None
    for partition in partitions_of(folders[last], manifests[last]):
        docs = partition.read([*COLUMNS, "cluster_id"])
        yield Batch(docs, None if groups is None else split_of(docs, groups))


def _of_files(input: list[str], source: dict[str, Any], settings: list[str]) -> Iterator[Batch]:
    """The documents of files, as `ingest` reads them; each input is a source, named by its file or folder."""
    from corpusmill.common.config import override, validate
    from corpusmill.pipeline.tokenizer.compare.draw import Batch
    from corpusmill.schemas.recipe import Recipe

    sources: dict[str, dict[str, Any]] = {}
    for path in input:
        stem = path.rstrip("/").rsplit("/", 1)[-1].split(".")[0]
        name = re.sub(r"[^A-Za-z0-9_]+", "-", stem).strip("-") or "input"
        sources.setdefault(name, {"paths": [], **source})["paths"].append(path)
    config = {"name": "compare", "sources": sources, "stages": ["ingest"]}
    recipe = validate(Recipe, override(config, settings), "corpusmill tokenizer compare")
    for docs in documents(recipe):
        yield Batch(docs, None)


class TokenizerCommand(TyperCommand):
    """The stage's own command, beside which stands `tokenizer compare`: a first argument of that name is no file."""

    @property
    def beside(self) -> dict[str, Any]:
        """The commands that begin with this one's name."""
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command("compare", epilog=f"\b\nExample: {COMPARE_EXAMPLE}")(compare)
        return {"compare": typer.main.get_command(app)}

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context of the command that the arguments are for."""
        if args[:1] == ["compare"]:
            return self.beside["compare"].make_context(
                f"{info_name} compare", args[1:], parent=parent, **extra
            )
        return super().make_context(info_name, args, parent=parent, **extra)
