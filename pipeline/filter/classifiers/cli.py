"""`classifier train` and `classifier evaluate`: fastText classifiers from the user's own labelled text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pipeline.filter.classifiers.training import Labelled

app = typer.Typer(no_args_is_help=True, help="Train and judge fastText classifiers for `filter`.")

THRESHOLDS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.99)

Data = Annotated[list[Path], typer.Argument(help="labelled JSONL (.gz too), CSV or TSV files")]
TextColumn = Annotated[str, typer.Option(help="field that holds the text")]
LabelColumn = Annotated[str, typer.Option(help="field that holds the label")]
Positive = Annotated[list[str], typer.Option(help="value of the label that is looked for; may be repeated")]


def read_labelled(path: Path, text_column: str, label_column: str, positive: list[str]) -> Labelled:
    """The texts of a file. Raises `UserError` for a missing file, or a field that it does not have."""
    import csv
    import gzip
    import io
    import json

    from pipeline.filter.classifiers.training import Labelled
    from schemas.errors import UserError, nearest

    name = path.name.removesuffix(".gz")
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        text = raw.decode("utf-8-sig")
        if name.endswith((".csv", ".tsv")):
            rows = list(
                csv.DictReader(io.StringIO(text, newline=""), delimiter="\t" if name.endswith("tsv") else ",")
            )
        else:
            rows = [json.loads(line) for line in text.split("\n") if line.strip()]
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (OSError, EOFError, ValueError) as error:
        raise UserError(f"{path}: cannot be read as labelled JSONL, CSV or TSV: {error}") from None
    texts, labels = [], []
    for number, row in enumerate(rows, 1):
        for column in (text_column, label_column):
            if not isinstance(row, dict) or row.get(column) is None:
                known = list(row) if isinstance(row, dict) else []
                raise UserError(
                    f"{path}: record {number} has no '{column}'{nearest(column, [str(k) for k in known])}"
                )
        texts.append(str(row[text_column]))
        labels.append(str(row[label_column]) in positive)
    return Labelled(name, texts, labels)


@app.command()
def train(
    data: Data,
    model: Annotated[Path, typer.Option(help="where the .ftz model goes; its card goes beside it, as .md")],
    positive: Positive,
    text_column: TextColumn = "text",
    label_column: LabelColumn = "label",
    label: Annotated[str, typer.Option(help="the model's name for what is looked for")] = "positive",
    precision: Annotated[float | None, typer.Option(help="choose the threshold for this precision")] = None,
    kept: Annotated[
        float | None, typer.Option(help="choose the threshold that leaves this share above it")
    ] = None,
    unseen: Annotated[
        list[Path] | None, typer.Option(help="a labelled file to judge by, never trained on")
    ] = None,
    worst: Annotated[
        bool, typer.Option(help="score by the worst windows, as toxicity, not by their mean")
    ] = False,
    held_out: Annotated[
        float, typer.Option(min=0.01, max=0.9, help="share of the texts not trained on")
    ] = 0.2,
    epochs: Annotated[int, typer.Option(min=1)] = 10,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1)] = 0,
    licence: Annotated[str, typer.Option(help="licence of the data, for the card")] = "not stated",
) -> None:
    """Train a quantised model on labelled text and write it with its card."""
    from dataclasses import replace

    from pipeline.filter.classifiers.building import build
    from pipeline.filter.classifiers.training import Training
    from schemas.errors import UserError

    if precision is not None and kept is not None:
        raise UserError("--precision and --kept: give one of them; both choose the threshold")
    sets = [
        replace(read_labelled(path, text_column, label_column, positive), licence=licence) for path in data
    ]
    judges = [read_labelled(path, text_column, label_column, positive) for path in unseen or []]
    training = Training(
        label=label, pool="worst" if worst else "mean", epochs=epochs, seed=seed, held_out=held_out
    )
    made = build(
        model, model.stem, "A classifier of the user's own.", sets, judges, training, THRESHOLDS,
        precision=precision, kept=kept,
    )  # fmt: skip
    typer.echo(
        f"{model}: {made.size:,} bytes, xxh3 {made.xxh3}, threshold {made.threshold:g}; card {made.card}"
    )


@app.command()
def evaluate(
    data: Data,
    model: Annotated[str, typer.Option(help="path or URL of a fastText model")],
    label: Annotated[str, typer.Option(help="the model's label that is scored")],
    positive: Positive,
    text_column: TextColumn = "text",
    label_column: LabelColumn = "label",
    worst: Annotated[
        bool, typer.Option(help="score by the worst windows, as toxicity, not by their mean")
    ] = False,
    json_out: Annotated[bool, typer.Option("--json", help="one machine-readable result")] = False,
) -> None:
    """AUC, precision, recall and false positives of a model on labelled text, by threshold."""
    import json
    from dataclasses import asdict

    from pipeline.filter.classifiers import fasttext_model
    from pipeline.filter.classifiers.card import table
    from pipeline.filter.classifiers.training import evaluate_classifier
    from schemas.errors import UserError, nearest

    file = fasttext_model.find(model)
    loaded = fasttext_model.load(file.path, file.xxh3)
    known = fasttext_model.labels(loaded)
    if label not in known:
        raise UserError(
            f"--label {label}: no label of {model}{nearest(label, known)} (allowed: {', '.join(known)})"
        )
    results = []
    for path in data:
        labelled = read_labelled(path, text_column, label_column, positive)
        results.append(evaluate_classifier(loaded, label, labelled, "worst" if worst else "mean", THRESHOLDS))
    if json_out:
        typer.echo(json.dumps([asdict(result) for result in results]))
        return
    for result in results:
        auc = "–" if result.auc is None else f"{result.auc:.3f}"
        typer.echo(f"{result.name}: {result.documents:,} texts, {result.positives:,} positive, AUC {auc}\n")
        rows = [list(row.values()) for row in result.rows]
        typer.echo(table([key.replace("_", " ") for key in result.rows[0]], rows) + "\n")
