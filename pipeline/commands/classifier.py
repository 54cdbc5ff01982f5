"""`classifier train`, `classifier evaluate` and `classifier score`: models over words (fastText) or over signals from the user's own
labelled text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from corpusmill.pipeline.commands.options import Json, print_json

if TYPE_CHECKING:
    from corpusmill.pipeline.filter.classifiers.building import IdentityReport
    from corpusmill.pipeline.filter.classifiers.labelled import Labelled
    from corpusmill.pipeline.filter.classifiers.training import Evaluation
    from corpusmill.pipeline.filter.quality_signals.training import SignalTraining

app = typer.Typer(no_args_is_help=True, help="Train, evaluate and use classifiers for `filter`.")

THRESHOLDS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
TRAIN_EXAMPLE = "corpusmill classifier train reviews.jsonl --model mine/spam.ftz --positive spam --label spam --precision 0.95"
EVALUATE_EXAMPLE = (
    "corpusmill classifier evaluate test.csv --model mine/spam.ftz --label spam --positive spam"
)
SIGNALS_EXAMPLE = (
    "classifier train pages.jsonl --on-signals --model mine/pages.json --positive good --label good"
)
SCORE_EXAMPLE = "corpusmill classifier score texts.jsonl --json"

Data = Annotated[list[Path], typer.Argument(help="Labelled JSONL, CSV or TSV files (.gz too).")]
TextColumn = Annotated[str, typer.Option(help="Field that holds the text.")]
LabelColumn = Annotated[str, typer.Option(help="Field that holds the label.")]
Positive = Annotated[list[str], typer.Option(help="Label value that counts as positive; repeatable.")]
Identity = Annotated[
    Path | None,
    typer.Option(help="Phrases that name identities: false positives are counted on the harmless ones."),
]
Worst = Annotated[
    bool,
    typer.Option("--worst", help="Score by the worst windows, as for toxicity, instead of by their mean."),
]


@app.command(epilog=f"Example: {TRAIN_EXAMPLE}")
def train(
    data: Data,
    model: Annotated[
        Path,
        typer.Option(
            help="Output file of the model (.ftz; .json with --on-signals); its card is written beside it (.md)."
        ),
    ],
    positive: Positive,
    text_column: TextColumn = "text",
    label_column: LabelColumn = "label",
    label: Annotated[str, typer.Option(help="The model's name for the positive class.")] = "positive",
    precision: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="Choose the threshold for this precision.")
    ] = None,
    kept: Annotated[
        float | None,
        typer.Option(min=0.0, max=1.0, help="Choose the threshold above which this share of the texts lies."),
    ] = None,
    unseen: Annotated[
        list[Path] | None, typer.Option(help="A labelled file for evaluation only; repeatable.")
    ] = None,
    identity: Identity = None,
    worst: Worst = False,
    held_out: Annotated[
        float, typer.Option(min=0.01, max=0.9, help="Share of the texts held out from training.")
    ] = 0.2,
    unlabelled: Annotated[
        list[Path] | None,
        typer.Option(
            help="JSONL without labels: texts that a first model is sure of are trained on; repeatable."
        ),
    ] = None,
    confidence: Annotated[
        float,
        typer.Option(
            min=0.5, max=1.0, help="Of --unlabelled: score from which, or 1 less it, a text is sure."
        ),
    ] = 0.95,
    epochs: Annotated[int, typer.Option(min=1)] = 10,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1)] = 0,
    licence: Annotated[str, typer.Option(help="Licence of the data, for the card.")] = "not stated",
    on_signals: Annotated[
        bool,
        typer.Option(
            "--on-signals",
            help=f"Train a model over the signals that `filter` stores, instead of over words: corpusmill {SIGNALS_EXAMPLE}",
        ),
    ] = False,
    free: Annotated[
        bool, typer.Option("--free", help="With --on-signals: let every signal count in either direction.")
    ] = False,
    json: Json = False,
) -> None:
    """Train a model on labelled text and write it with its card: fastText over words, quantised, or an additive one over signals."""
    from dataclasses import asdict

    from corpusmill.common.errors import UserError
    from corpusmill.pipeline.filter.classifiers.building import build
    from corpusmill.pipeline.filter.classifiers.labelled import (
        read_identity,
        read_labelled,
        read_texts,
    )
    from corpusmill.pipeline.filter.classifiers.training import Training

    if precision is not None and kept is not None:
        raise UserError("--precision and --kept: give one of them; both choose the threshold")
    columns = (text_column, label_column, positive)
    sets = [read_labelled(path, *columns, licence) for path in data]
    judges = [read_labelled(path, *columns) for path in unseen or []]
    if free and not on_signals:
        raise UserError(
            "--free: only a model over signals has directions to be free of; give --on-signals, too"
        )
    if on_signals:
        others = {"--unlabelled": unlabelled, "--identity": identity, "--worst": worst}
        if given := [name for name, value in others.items() if value]:
            raise UserError(f"{given[0]}: is for models over words; leave it out, or --on-signals")
        _train_on_signals(
            sets, judges, model, _signal_training(label, free, seed, held_out), precision, kept, json
        )
        return
    phrases = None if identity is None else read_identity(identity, *columns)
    pool: Literal["worst", "mean"] = "worst" if worst else "mean"
    training = Training(label=label, pool=pool, epochs=epochs, seed=seed, held_out=held_out)
    made = build(
        model, model.stem, "A classifier of the user's own.", sets, judges, training, THRESHOLDS,
        precision=precision, kept=kept, identity=phrases,
        unlabelled={str(path): read_texts(path, text_column) for path in unlabelled or []}, confidence=confidence,
    )  # fmt: skip
    if json:
        print_json({**asdict(made), "model": str(model), "label": label})
        return
    typer.echo(
        f"{model}: {made.size:,} bytes, xxh3 {made.xxh3}, threshold {made.threshold}; card {made.card}\n"
    )
    if made.without is not None:
        typer.echo("On the held-out texts, trained on the labels alone:\n")
        _print_evaluation(made.without)
        typer.echo("With pseudo-labels:\n")
    _print_evaluation(made.held_out)
    if made.identity is not None:
        _print_identity(made.identity)
    section = "toxicity" if worst else "quality"  # which pool as the threshold was chosen
    typer.echo(
        "In a recipe, to remove what scores high (with remove_below: what scores low):\n"
        f"  filter: {{{section}: {{model: {model}, label: {label}, remove_above: {made.threshold}}}}}"
    )


@app.command(epilog=f"Example: {EVALUATE_EXAMPLE}")
def evaluate(
    data: Data,
    model: Annotated[
        str, typer.Option(help="Path or URL of a fastText model (.ftz or .bin) or one over signals (.json).")
    ],
    label: Annotated[str, typer.Option(help="Label of the model to score.")],
    positive: Positive,
    text_column: TextColumn = "text",
    label_column: LabelColumn = "label",
    identity: Identity = None,
    worst: Worst = False,
    input: Annotated[
        Literal["windows", "text"],
        typer.Option(
            help="`windows` of lower-case words, for models of `classifier train`; or the unchanged `text`."
        ),
    ] = "windows",
    threshold: Annotated[
        list[float] | None, typer.Option(min=0.0, max=1.0, help="Threshold to evaluate; repeatable.")
    ] = None,
    json: Json = False,
) -> None:
    """AUC, precision, recall and false positives of a model on labelled text, by threshold."""
    from dataclasses import asdict

    from corpusmill.pipeline.filter.classifiers import fasttext_model, predictor
    from corpusmill.pipeline.filter.classifiers.building import identity_report
    from corpusmill.pipeline.filter.classifiers.labelled import read_identity, read_labelled
    from corpusmill.pipeline.filter.classifiers.pooling import Pool
    from corpusmill.pipeline.filter.classifiers.scores import known_label
    from corpusmill.pipeline.filter.classifiers.training import evaluate_classifier, score_texts

    columns = (text_column, label_column, positive)
    sets = [read_labelled(path, *columns) for path in data]
    phrases = None if identity is None else read_identity(identity, *columns)
    file = fasttext_model.find(model)
    loaded = predictor.load(file.path, file.xxh3)
    label = known_label("--label", loaded, label, model)
    pool: Pool = "worst" if worst else "mean"
    steps = sorted(set(threshold or THRESHOLDS))
    results = [evaluate_classifier(loaded, label, part, pool, steps, input) for part in sets]
    bias = []
    if phrases is not None:
        found = score_texts(loaded, label, phrases.texts, pool, input)
        bias = [identity_report(phrases, found, step) for step in steps]
    if json:
        lists = {"sets": list(map(asdict, results)), "identity": list(map(asdict, bias))}
        print_json({"model": model, "label": label, **lists})
        return
    for result in results:
        _print_evaluation(result)
    for report in bias:
        _print_identity(report)


@app.command(epilog=f"Example: {SCORE_EXAMPLE}")
def score(
    texts: Annotated[Path, typer.Argument(help="JSONL with a text a line; `-`: standard input.")],
    model: Annotated[
        str | None,
        typer.Option(
            help="Path or URL of a fastText model or one over signals (.json). [the shipped toxicity model]"
        ),
    ] = None,
    label: Annotated[str | None, typer.Option(help="Label to score, with --model.")] = None,
    threshold: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Above which the model's errors are stated.")
    ] = 0.5,
    labelled: Annotated[
        list[Path] | None,
        typer.Option(
            help="Labelled file to measure the errors on, instead of the card's figures; repeatable."
        ),
    ] = None,
    positive: Annotated[
        list[str] | None, typer.Option(help="With --labelled: label value that counts as positive.")
    ] = None,
    text_column: TextColumn = "text",
    label_column: LabelColumn = "label",
    mean: Annotated[
        bool, typer.Option("--mean", help="Score by the mean of the windows, instead of by the worst.")
    ] = False,
    input: Annotated[
        Literal["windows", "text"], typer.Option(help="How the model reads a text, as of `evaluate`.")
    ] = "windows",
    json: Json = False,
) -> None:
    """The score of each text, in their order, and how right the model is above a threshold."""
    from corpusmill.common.errors import UserError
    from corpusmill.pipeline.filter.classifiers import card_figures, fasttext_model, predictor
    from corpusmill.pipeline.filter.classifiers.labelled import read_labelled, read_texts
    from corpusmill.pipeline.filter.classifiers.pooling import Pool
    from corpusmill.pipeline.filter.classifiers.scores import known_label
    from corpusmill.pipeline.filter.classifiers.training import evaluate_classifier, score_texts
    from corpusmill.pipeline.filter.quality_signals.model import SignalModel
    from corpusmill.schemas.fairness import ClassifierError, ToxicityScores

    file = (
        fasttext_model.shipped(fasttext_model.SHIPPED["toxicity"])
        if model is None
        else fasttext_model.find(model)
    )
    loaded = predictor.load(file.path, file.xxh3)
    if isinstance(loaded, SignalModel):
        label = label or loaded.label
    label = known_label("--label", loaded, label or file.label, model)
    pool: Pool = "mean" if mean else "worst"
    found = score_texts(loaded, label, read_texts(texts, text_column), pool, input)
    if labelled:
        if not positive:
            raise UserError("--labelled: --positive is missing, the label value that counts as positive")
        errors = []
        for path in labelled:
            part = evaluate_classifier(
                loaded,
                label,
                read_labelled(path, text_column, label_column, positive),
                pool,
                [threshold],
                input,
            )
            at = part.at(threshold)
            errors.append(
                ClassifierError(
                    name=part.name, texts=part.documents, positives=part.positives, precision=at["precision"],
                    recall=at["recall"], false_positive_rate=at["false_positive_rate"],
                )
            )  # fmt: skip
    else:
        card = Path(file.path).with_suffix(".md")
        errors = card_figures.errors(card.read_text(encoding="utf-8"), threshold) if card.is_file() else []
    result = ToxicityScores(
        model=f"{Path(file.path).name}, xxh3 {file.xxh3}", label=label, threshold=threshold,
        scores=found.tolist(), errors=errors,
    )  # fmt: skip
    if json:
        print_json(result.model_dump(mode="json"))
        return
    for value in result.scores:
        typer.echo(f"{value:.4f}")
    for error in errors:
        precision, recall = ("–" if one is None else f"{one:.3f}" for one in (error.precision, error.recall))
        typer.echo(f"{error.name}: above {threshold} precision {precision}, recall {recall}", err=True)


def _signal_training(label: str, free: bool, seed: int, held_out: float) -> SignalTraining:
    from corpusmill.pipeline.filter.quality_signals.fitting import Options
    from corpusmill.pipeline.filter.quality_signals.training import SignalTraining

    return SignalTraining(label, Options(free=free), seed, held_out)


def _train_on_signals(
    sets: list[Labelled], unseen: list[Labelled], model: Path, training: SignalTraining,
    precision: float | None, kept: float | None, json: bool,
) -> None:  # fmt: skip
    from dataclasses import asdict

    from corpusmill.pipeline.filter.quality_signals.building import build_on_signals

    made = build_on_signals(model, sets, unseen, training, THRESHOLDS, precision, kept)
    if json:
        print_json({**asdict(made), "model": str(model), "label": training.label})
        return
    typer.echo(
        f"{model}: {made.size:,} bytes, xxh3 {made.xxh3}, threshold {made.threshold}; card {made.card}\n"
    )
    _print_evaluation(made.held_out)
    typer.echo(
        "In a recipe, to remove what scores low (with remove_above: what scores high):\n"
        f"  filter: {{quality_signals: {{model: {model}, remove_below: {made.threshold}}}}}"
    )


def _print_evaluation(result: Evaluation) -> None:
    from corpusmill.pipeline.filter.classifiers.building import thresholds_table

    auc = "–" if result.auc is None else f"{result.auc:.3f}"
    typer.echo(f"{result.name}: {result.documents:,} texts, {result.positives:,} positive, AUC {auc}\n")
    typer.echo(thresholds_table(result.rows) + "\n")


def _print_identity(report: IdentityReport) -> None:
    worst = ", ".join(f"{term} {above / phrases:.0%}" for term, phrases, above in report.terms[:5])
    typer.echo(
        f"Identity terms, {report.name}: {report.above:,} of {report.phrases:,} harmless phrases"
        f" ({report.rate:.1%}) above {report.threshold}; most: {worst}\n"
    )
