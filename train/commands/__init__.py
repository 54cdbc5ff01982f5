"""The trainer's commands, and their registration in the command line. Importing them loads no torch: what a command needs is
imported when it runs."""

from __future__ import annotations

from collections.abc import Callable

import typer

from corpusmill.train.commands.branch import branch
from corpusmill.train.commands.calibration import calibration
from corpusmill.train.commands.checkpoint import app as checkpoint
from corpusmill.train.commands.comparison import compare_models
from corpusmill.train.commands.compress import compress
from corpusmill.train.commands.continual import average, exposure, forgetting
from corpusmill.train.commands.cross_validate import cross_validate
from corpusmill.train.commands.data import batch, estimate, plan
from corpusmill.train.commands.fairness import fairness
from corpusmill.train.commands.finetune import finetune
from corpusmill.train.commands.generation import generate
from corpusmill.train.commands.glitch import glitch_tokens
from corpusmill.train.commands.judge import judge
from corpusmill.train.commands.pseudo_label import pseudo_label
from corpusmill.train.commands.results import contamination
from corpusmill.train.commands.reward import reward
from corpusmill.train.commands.robustness import robustness
from corpusmill.train.commands.scoring import arithmetic, glue_rows, score, style
from corpusmill.train.commands.serving import chat, serve
from corpusmill.train.commands.tasks import task_data, tasks
from corpusmill.train.commands.teacher_logits import teacher_logits
from corpusmill.train.commands.train import dashboard, evaluate, export, train
from corpusmill.train.commands.tune import lr_find, search

TRAIN, SEARCH = "configs/train/quickstart.yaml", "configs/search/quickstart.yaml"
CHAT = "configs/train/chat.yaml"
COMMANDS: tuple[tuple[Callable[..., None], str], ...] = (  # with the arguments of each one's example
    (train, f"{TRAIN} --set output=runs/mine"),
    (finetune, f"{CHAT} --epochs 3"),
    (evaluate, f"{TRAIN} --tasks blimp --data blimp=blimp.jsonl.gz --limit 500"),
    (robustness, f"{TRAIN} --tasks blimp --data blimp=blimp.jsonl.gz --perturb typos:0.05"),
    (contamination, "runs/quickstart/train out/items"),
    (tasks, "hellaswag"),
    (task_data, "hellaswag --out task-data"),
    (compare_models, "runs/a runs/b --by subject"),
    (calibration, "runs/quickstart/train --next-token"),
    (score, "texts.jsonl --metric rouge --metric squad_f1"),
    (style, "examples/chat/style.yaml answers.jsonl"),
    (glue_rows, "mrpc MRPC/dev.tsv"),
    (arithmetic, "--operation addition --digits 2"),
    (generate, f"{TRAIN} --prompt 'The history of'"),
    (teacher_logits, f"{TRAIN} --set distillation.teacher=runs/large --out runs/large-logits --top 32"),
    (pseudo_label, "runs/quickstart/chat examples/chat/prompts.jsonl --out more.jsonl --least -0.5"),
    (reward, "runs/quickstart/reward examples/chat/pairs.jsonl --out scored.jsonl"),
    (chat, f"{TRAIN} --system 'You answer in one sentence.'"),
    (serve, f"{TRAIN} --port 8000"),
    (cross_validate, f"{TRAIN} --folds 5 --set output=runs/folds"),
    (fairness, "runs/quickstart/train --samples 10"),
    (glitch_tokens, "runs/quickstart/train --most-seen 5"),
    (judge, "runs/small runs/large --prompts prompts.jsonl"),
    (export, f"{TRAIN} model/"),
    (compress, "runs/quickstart/train small/ --method gptq"),
    (exposure, "runs/quickstart/continue --documents seen.parquet"),
    (forgetting, "runs/quickstart/continue"),
    (average, "runs/quickstart/train --last 3 --out runs/quickstart/average"),
    (branch, "runs/quickstart/train --from 800 --decay 10% --shape sqrt"),
    (plan, TRAIN),
    (batch, f"{TRAIN} --step 100"),
    (dashboard, f"{TRAIN} --watch 10"),
    (lr_find, f"{TRAIN} --low 1e-5 --high 1"),
    (search, f"{SEARCH} --set parallel=2"),
    (estimate, "configs/train/8b.yaml --vocab 128256 --gpu H100 --count 512"),
)


def register(app: typer.Typer) -> None:
    """Add the trainer's commands to the command line."""
    for command, arguments in COMMANDS:
        name = command.__name__.replace("_", "-")
        app.command(name, epilog=f"Example: corpusmill {name} {arguments}")(command)
    app.add_typer(checkpoint, name="checkpoint")
