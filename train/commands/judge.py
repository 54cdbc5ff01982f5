"""`corpusmill judge`: blind pairwise ratings of two models' texts by people, and what they show."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from corpusmill.common.errors import UserError
from corpusmill.common.format import quantity
from corpusmill.common.jsonl import read_jsonl
from corpusmill.train.commands.generation import Temperature, Tokens, TopK, TopP
from corpusmill.train.commands.options import Json, print_json, print_table

if TYPE_CHECKING:
    from corpusmill.schemas.generation import Sampling
    from corpusmill.schemas.judging import JudgeReport
    from corpusmill.train.evaluate.judge.pairs import Pairs

ELO = 173.71779276130073  # 400 / ln 10


def judge(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="A B | RATINGS...",
            help="two runs, or two JSONL files with `prompt` and `text`; with --report files of ratings",
        ),
    ],
    prompts: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="JSONL with a `prompt` a line, which runs are to continue"),
    ] = None,
    ratings: Annotated[
        Path,
        typer.Option(
            help="file that the ratings are added to; what it holds is not asked again, and texts of runs are kept beside it"
        ),
    ] = Path("ratings.jsonl"),
    port: Annotated[int, typer.Option(min=0, max=65535, help="of this machine; 0: any that is free")] = 8765,
    rows: Annotated[int | None, typer.Option(min=1, help="pairs at most, the first ones [all]")] = None,
    max_tokens: Tokens = 100,
    temperature: Temperature = 0.8,
    top_p: TopP = 0.95,
    top_k: TopK = 50,
    seed: Annotated[int, typer.Option(help="of the texts, and of the sides on which they stand")] = 0,
    report: Annotated[
        bool, typer.Option("--report", help="print what files of ratings show, and serve nothing")
    ] = False,
    preferences: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="with --report: write {prompt, chosen, rejected} of the pairs with a preference",
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """Have people compare two models' texts blindly, on a page of this machine."""
    if report:
        _report([Path(name) for name in inputs], preferences, json_)
        return
    if len(inputs) != 2:
        raise UserError(
            f"judge compares two runs or files, not {len(inputs)}; --report takes files of ratings"
        )
    if preferences is not None or json_:
        raise UserError("--preferences and --json go with --report")
    from corpusmill.train.evaluate.judge.ratings import Ratings
    from corpusmill.train.evaluate.judge.server import Session, serve
    from corpusmill.train.evaluate.judge.texts import texts_file
    from corpusmill.train.generate.generate import checked

    sampling = checked(max_tokens=max_tokens, temperature=temperature, top_p=top_p, top_k=top_k, seed=seed)
    pairs = _pairs(inputs[0], inputs[1], prompts, sampling, rows, texts_file(ratings))
    kept = Ratings(ratings)
    session = Session(pairs, kept, seed)
    for line in pairs.notes():
        typer.echo(line, err=True)

    def ready(url: str) -> None:
        typer.echo(f"{quantity(len(pairs.rows), 'pair')} at {url}, ratings in {ratings}; Ctrl-C ends it")

    serve(session, port, ready)
    typer.echo(f"{quantity(len(kept.rows), 'rating')} in {ratings}: corpusmill judge --report {ratings}")


def _pairs(a: str, b: str, prompts: Path | None, sampling: Sampling, rows: int | None, texts: Path) -> Pairs:
    from corpusmill.train.evaluate.judge.pairs import from_file, from_run, is_file, paired

    files = [is_file(a), is_file(b)]
    wanted = (
        [row["prompt"] for row in read_jsonl(prompts, "prompt", option="--prompts")][:rows] if prompts else []
    )
    if not all(files) and not wanted:
        raise UserError(
            "--prompts is missing: a JSONL file with a `prompt` a line, which the runs are to continue"
        )
    models = [
        from_file(Path(name)) if file else from_run(name, wanted, sampling, texts)
        for name, file in zip((a, b), files, strict=True)
    ]
    if wanted:
        chosen = set(wanted)
        if lost := len(chosen.difference(*(dict(model.texts) for model in models))):
            typer.echo(f"{quantity(lost, 'prompt')} of {prompts} without a text in both files", err=True)
        models = [
            model._replace(texts=[text for text in model.texts if text[0] in chosen]) for model in models
        ]
    return paired(models[0], models[1], None if any(files) else sampling, rows)


def _report(files: list[Path], preferences: Path | None, json_: bool) -> None:
    from corpusmill.train.evaluate.judge.ratings import preferences as preferred
    from corpusmill.train.evaluate.judge.ratings import read
    from corpusmill.train.evaluate.judge.report import report as work

    rows = read(files)
    if not rows:
        raise UserError(f"{', '.join(map(str, files))}: no ratings yet")
    result = work(rows)
    if preferences is not None:
        found = preferred(rows)
        preferences.write_bytes(b"".join(one.model_dump_json().encode() + b"\n" for one in found))
        typer.echo(f"{quantity(len(found), 'preference')} in {preferences}", err=True)
    if json_:
        print_json(result.model_dump(mode="json"))
        return
    for title, lines in tables(result):
        print_table(lines, title)
    for line in result.findings:
        typer.echo(line)


def tables(result: JudgeReport) -> list[tuple[str, list[list[str]]]]:
    """Titles and rows of what is printed."""
    from corpusmill.train.evaluate.resampling import shown

    compared = [["A", "B", "ratings", "A wins", "B wins", "ties", "both bad", "win rate of A"]]
    for one in result.comparisons:
        counts = [one.ratings, one.wins_a, one.wins_b, one.ties, one.both_bad]
        compared.append([one.a, one.b, *map(str, counts), shown(one.win_rate)])
    raters = quantity(len(result.raters), "rater")
    title = f"{quantity(result.ratings, 'rating')} of {quantity(result.pairs, 'pair')} by {raters}"
    found = [(title, compared)]
    if result.scores:
        rows = [["model", "score (log-odds)", "Elo scale"]]
        for name, score in result.scores.items():
            rows.append([name, shown(score), f"{score.value * ELO:+.0f}"])
        found.append(("Bradley-Terry scores, 95 % intervals over prompts", rows))
    alpha = result.agreement.alpha
    left = result.left
    others = [
        ["figure", "value"],
        ["agreement (Krippendorff's alpha)", shown(alpha) if alpha else "–"],
        ["choices for the left text", shown(left) if left else "–"],
    ]
    found.append((f"{quantity(result.agreement.pairs, 'pair')} with two or more ratings", others))
    return found
