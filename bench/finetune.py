"""Fine-tuning beside TRL with transformers and PEFT: losses of the same steps on the same batch, logits of an adapter, and tokens a
second of supervised tuning and of DPO, on the same model, documents and threads.

Conversations are made of the example corpus: questions of 5 to 40 words and answers of 10 to 200. Both sides get the ids that ours made
of them, so that tokenizers play no part. Losses are of steps with AdamW on one batch that holds every document, so that those of later
steps compare gradients too. Speed is of whole epochs in fp32, without the first two steps; runs of both alternate, each in a process
of its own, and medians count. TRL pads its batches, or packs them (`bfd`), whichever is faster.
"""

from __future__ import annotations

import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import _models, _nf4, _rewards, learning
from bench.peers import NotMeasured, Peer, packages

ROOT = Path(__file__).resolve().parent.parent
TRL = Peer(
    "tuning",
    ("trl==1.16.0", "transformers==5.23.0", "peft==0.21.2", "accelerate==1.15.0", "datasets==5.2.0"),
    "",
)
BITSANDBYTES = Peer("bitsandbytes", ("bitsandbytes==0.50.2",), "")
ROUNDS, THREADS, STEPS = 3, 2, 4
FEW = 12  # documents of the losses
MANY = 128  # of the epochs
LENGTH = 512  # of a row
BATCH = 16  # conversations of TRL's batch, or pairs
LOSSES = ("sft", "dpo", "ipo", "hinge", "kto", "simpo", "orpo")
SPEEDS = ("sft", "dpo")
RATE = 1e-3


def write_lines(folder: Path, count: int) -> dict[str, Path]:
    """Files of conversations, of pairs of answers and of answers with a label, by what reads them."""
    draw = random.Random(23)
    books = sorted((ROOT / "examples/corpus/sources/books").rglob("*.txt"))
    words = re.sub(r"\s+", " ", "\n".join(file.read_text("utf-8") for file in books)).split(" ")

    def run_of(low: int, high: int) -> str:
        size = round(low * (high / low) ** draw.random())
        first = draw.randrange(len(words) - size)
        return " ".join(words[first : first + size])

    rows = [(run_of(5, 40), run_of(10, 200), run_of(10, 200)) for _ in range(count)]
    made = {
        "sft": [{"prompt": a, "completion": b} for a, b, _ in rows],
        "pairs": [{"prompt": a, "chosen": b, "rejected": c} for a, b, c in rows],
        "kto": [{"prompt": a, "completion": b, "label": n % 2 == 0} for n, (a, b, _) in enumerate(rows)],
    }
    found = {}
    for name, lines in made.items():
        found[name] = folder / f"{name}-{count}.jsonl"
        found[name].write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return found


def file_of(loss: str, files: dict[str, Path]) -> Path:
    return files[loss if loss in files else "pairs"]


def config_of(run: str, file: str, loss: str, output: str, more: dict[str, Any]) -> Any:
    """A config that tunes the model of a run on a file, all of whose rows are one batch unless `more` has another one."""
    from corpusmill.common.config import override, validate
    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.data.opening import open_run_data
    from corpusmill.train.data.planning import make_plan
    from corpusmill.train.run_folder import open_run

    model = more.get("model") or open_run(run)[0].model.model_dump(mode="json")
    given: dict[str, Any] = {
        "name": loss, "output": output, "seed": 1, "init_from": run, "model": model, "precision": "fp32",
        "data": {
            "shards": file, "conversations": {"validation_share": 0, "template": "plain"}, "sequence_length": LENGTH,
            "global_batch": 1, "micro_batch": 1, "token_cache": f"{output}-tokens",
        },
        "optimizer": {"kind": "adamw", "lr": RATE, "betas": [0.9, 0.999], "weight_decay": 0.0, "grad_clip": 1.0},
        "schedule": {"steps": STEPS, "warmup_steps": 0, "kind": "constant"},
        "checkpoint": {"every": 1000, "keep_last": 1}, "validation": {"every": None}, "log": {"every": 1, "tensorboard": False},
    }  # fmt: skip
    if loss != "sft":
        given["objective"] = {"loss": loss, "beta": 2.0 if loss == "simpo" else 0.1}
    given = override(given, [f"{key}={json.dumps(value)}" for key, value in more.items()])
    made = validate(TrainConfig, given, "bench")
    if "data.global_batch" not in more:
        rows = sum(one.sequences.total for one in make_plan(made.data, open_run_data(made), 1).sources)
        given = override(given, [f"data.global_batch={rows}", f"data.micro_batch={rows}"])
        made = validate(TrainConfig, given, "bench")
    return made


def documents(config: Any) -> list[dict[str, Any]]:
    """The documents as ours has them: the ids that are read, those that are labels, and the kind of the answer. A document is
    read after the end-of-document token, which begins it here."""
    from corpusmill.schemas.shards import Target
    from corpusmill.train.data.opening import open_run_data
    from corpusmill.train.evaluate.baselines import all_blocks

    shards = open_run_data(config)
    found = []
    for source in shards.train.values():
        for block in all_blocks(source):
            assert block.targets is not None
            ends = [*block.starts[1:].tolist(), len(block.tokens)]
            for start, end in zip(block.starts.tolist(), ends, strict=True):
                ids, kinds = block.tokens[start:end].astype(int), block.targets[start:end]
                labels = kinds != Target.context
                if labels.any():
                    first = int(labels.argmax())
                    last = first + int(labels[first:].sum())
                    prompt = ids[:first].tolist()
                    if prompt[:1] != [shards.set.eos_id]:  # a block's first document has it
                        prompt.insert(0, shards.set.eos_id)
                    found.append(
                        {"prompt": prompt, "answer": ids[first:last].tolist(), "kind": int(kinds[first])}
                    )
    return found


def ours(run: str, file: str, loss: str, output: str, more: str) -> dict[str, Any]:
    """Losses of the steps, and seconds of those after the second, in this process."""
    import torch

    from corpusmill.train.trainer import train

    torch.set_num_threads(THREADS)
    config = config_of(run, file, loss, output, json.loads(more))
    times, losses = list[float](), list[float]()

    def on_row(row: dict[str, Any]) -> None:
        times.append(time.monotonic())
        losses.append(row["loss"])

    train(config, on_row=on_row)
    return {
        "losses": losses, "seconds": times[-1] - times[1] if len(times) > 2 else 0.0, "steps": len(times)
    }  # fmt: skip


def alone(module: str, function: str, arguments: list[str], path: str = "") -> Any:
    """What a function of a module of the bench returns, in a process of its own."""
    script = (
        "import sys, json, importlib; sys.path += sys.argv[1].split(':') if sys.argv[1] else [];"
        f" found = getattr(importlib.import_module('bench.{module}'), '{function}')(*sys.argv[2:]); print(); print(json.dumps(found))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, path, *arguments], capture_output=True, text=True, cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": str(THREADS), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"},
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    return json.loads(done.stdout.splitlines()[-1])


def losses_table(folder: Path, run: str, exported: str, path: str) -> list[str]:
    """Losses of the same steps on both sides."""
    files = write_lines(folder, FEW)
    lines = []
    for loss in LOSSES:
        file = str(file_of(loss, files))
        output = str(folder / f"losses-{loss}")
        mine = alone("finetune", "ours", [run, file, loss, output, "{}"])["losses"]
        config = config_of(run, file, loss, output, {})
        whole = folder / f"documents-{loss}.json"
        whole.write_text(json.dumps(documents(config)), encoding="utf-8")
        try:
            theirs = alone(
                "_finetune_trl", "losses", [exported, str(whole), loss, str(STEPS), str(RATE)], path
            )
        except RuntimeError as error:
            lines.append(
                f"| {loss} | {', '.join(f'{one:.6f}' for one in mine)} | failed: {str(error).splitlines()[-1][:120]} | |"
            )
            continue
        apart = max(abs(a - b) / max(abs(b), 1e-9) for a, b in zip(mine, theirs, strict=True))
        pairs = [", ".join(f"{one:.6f}" for one in each) for each in (mine, theirs)]
        lines.append(f"| {loss} | {pairs[0]} | {pairs[1]} | {apart:.1e} |")
    return lines


def rewards_table(folder: Path, run: str, exported: str, path: str) -> list[str]:
    """Losses and norms of gradients of the same steps of a reward model, and of reinforcement on the same answers."""
    files, lines = write_lines(folder, FEW), []

    def line(name: str, mine: list[dict[str, float]], theirs: list[dict[str, float]]) -> str:
        shown = []
        for what in ("loss", "norm"):
            pairs = [(one[what], other[what]) for one, other in zip(mine, theirs, strict=True)]
            apart = max(abs(a - b) / max(abs(b), 1e-2) for a, b in pairs)
            shown += [
                *(", ".join(f"{value:.5f}" for value in side) for side in zip(*pairs, strict=True)),
                f"{apart:.1e}",
            ]
        return f"| {name} | {' | '.join(shown)} |"

    found = alone("_rewards", "rewarding", [run, str(files["pairs"]), str(folder / "rewarding")])
    whole, head = folder / "documents-reward.json", folder / "head.json"
    config = config_of(run, str(files["pairs"]), "dpo", str(folder / "rewarding-documents"), {})
    whole.write_text(json.dumps(documents(config)), encoding="utf-8")
    head.write_text(json.dumps(found["head"]), encoding="utf-8")
    given = [exported, str(whole), str(head), str(STEPS), str(RATE)]
    lines.append(line("reward model", found["steps"], alone("_rewards_trl", "rewarding", given, path)))
    for loss in _rewards.LOSSES:
        mine = alone(
            "_rewards", "reinforced", [run, str(files["sft"]), loss, str(folder / f"reinforced-{loss}")]
        )
        steps = folder / f"answers-{loss}.json"
        steps.write_text(json.dumps(mine), encoding="utf-8")
        given = [
            exported,
            str(steps),
            loss,
            *map(str, (RATE, _rewards.BETA, _rewards.GROUP, _rewards.TOKENS)),
        ]
        lines.append(line(loss, mine, alone("_rewards_trl", "reinforced", given, path)))
    return lines


def adapter_line(folder: Path, run: str, exported: str, path: str) -> list[str]:
    """Logits of a trained adapter: ours, and PEFT's of the file that ours has written."""
    from corpusmill.common.storage import Folder
    from corpusmill.train.finetune.peft import export_adapter
    from corpusmill.train.run_folder import open_run

    file = str(write_lines(folder, FEW)["sft"])
    lines = []
    for name, adapter in (
        ("LoRA", {}), ("rsLoRA", {"rslora": True}), ("DoRA", {"dora": True})
    ):  # fmt: skip
        output = folder / f"adapter-{name}"
        more = {"adapter": {"rank": 8, "alpha": 16.0, **adapter}, "optimizer.lr": 0.01}
        alone("finetune", "ours", [run, file, "sft", str(output), json.dumps(more)])
        export_adapter(*open_run(str(output)), Folder(f"{output}-peft"), "float32")
        mine = alone("finetune", "logits", [str(output)])
        theirs = alone("_finetune_trl", "logits", [exported, f"{output}-peft"], path)
        for what in ("separate", "merged"):
            apart = max(abs(a - b) for a, b in zip(mine, theirs[what], strict=True))
            lines.append(f"| {name}, {what} | {max(map(abs, mine)):.4f} | {apart:.1e} |")
    return lines


def logits(run: str) -> list[float]:
    """Of some positions of a run's newest checkpoint, its adapter merged."""
    import torch

    from corpusmill.train.evaluate.splits import load_model, newest_checkpoint
    from corpusmill.train.run_folder import open_run, read_run_data

    config, folder = open_run(run)
    kept = read_run_data(folder)
    assert kept is not None
    model = load_model(config, newest_checkpoint(folder), kept.vocab_size, torch.device("cpu"))
    with torch.no_grad():
        found: list[float] = model(torch.arange(1, 65)[None])[0, -1].tolist()
    return found


def speed_table(folder: Path, run: str, exported: str, shape: str, path: str) -> list[str]:
    """Tokens a second of whole epochs."""
    files = write_lines(folder, MANY)
    lines = []
    for loss in SPEEDS:
        file = str(file_of(loss, files))
        output = str(folder / f"speed-{Path(run).name}-{loss}")
        config = config_of(run, file, loss, output, {})
        every, rows = documents(config), config.data.global_batch
        whole = folder / f"documents-{Path(run).name}-{loss}.json"
        whole.write_text(json.dumps(every), encoding="utf-8")
        tokens = sum(len(one["prompt"]) + len(one["answer"]) for one in every)
        of_a_pair = 2 if loss == "dpo" else 1
        steps = MANY // BATCH
        batch = max(round(rows / steps), 1)  # rows with about as many tokens as TRL's batch has
        epoch = rows // batch
        more = {"data.global_batch": batch, "data.micro_batch": batch, "schedule.steps": epoch}
        mine, theirs, packed = list[float](), list[float](), list[float]()
        for _ in range(ROUNDS):
            found = alone("finetune", "ours", [run, file, loss, f"{output}-{len(mine)}", json.dumps(more)])
            mine.append(tokens * (batch * (epoch - 2) / rows) / found["seconds"])
            for packing, into in ((False, theirs), (True, packed)):
                if packing and loss != "sft":
                    continue
                answer = alone(
                    "_finetune_trl", "speed", [exported, str(whole), loss, str(BATCH), str(int(packing)), str(LENGTH)], path
                )  # fmt: skip
                into.append(answer["tokens"] / answer["seconds"])
        medians = {"padded": statistics.median(theirs)}
        if packed:
            medians["packed"] = statistics.median(packed)
        best = max(medians, key=lambda name: medians[name])
        each = packed if best == "packed" else theirs
        ratios = sorted(a / b for a, b in zip(mine, each, strict=True))
        shown = ", ".join(f"{value:,.0f} {name}" for name, value in medians.items())
        what = "supervised tuning" if loss == "sft" else "DPO"
        lines.append(
            f"| {shape} ({_models.parameters(Path(run)) / 1e6:.1f} M) | {what} | {tokens // of_a_pair // MANY:,} |"
            f" {statistics.median(mine):,.0f} | {shown} | **{statistics.median(ratios):.2f}** ({ratios[0]:.2f} to {ratios[-1]:.2f}) |"
        )
    return lines


def main() -> None:
    """Print Markdown."""
    from corpusmill.common.storage import Folder
    from corpusmill.train.run_folder import open_run
    from corpusmill.train.tools.hugging_face import export

    try:
        path = str(packages(TRL.name, TRL.requirements))
    except NotMeasured as reason:
        print(f"Not measured: {reason}.")
        return
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        shards = learning.made(place)
        small = next(iter(_models.SHAPES))
        run = _models.make(folder, shards, small)
        exported = f"{run}-exported"
        export(*open_run(str(run)), Folder(exported))
        print(f"{', '.join(one.replace('==', ' ') for one in TRL.requirements)}; {THREADS} threads, fp32.\n")
        print(
            f"Losses of {STEPS} steps on one batch of {FEW} documents (AdamW, {RATE:g}, gradients clipped at 1):\n"
        )
        print("| loss | ours | TRL | largest relative difference |")
        print("|---|---|---|---:|")
        print("\n".join(losses_table(folder, str(run), exported, path)))
        print(
            "\n`simpo` and `orpo` are TRL's formulas on log-probabilities of transformers, as its trainers of them tokenise by themselves;"
            " the likelihood in `orpo` is over the answer on both sides. `kto` draws its mismatched answers by one place in the batch.\n"
        )
        print(
            f"Rewards, the same steps (relative differences, of at least 0.01): a reward model on pairs, by RewardTrainer's loss; and"
            f" reinforcement on {_rewards.GROUP} answers to each of {FEW} prompts, sampled by ours before each step and given to both"
            f" (divergence from the reference {_rewards.BETA:g}), by the losses of GRPOTrainer and RLOOTrainer:\n"
        )
        print("| | loss, ours | TRL | apart | gradient's norm, ours | TRL | apart |")
        print("|---|---|---|---:|---|---|---:|")
        print("\n".join(rewards_table(folder, str(run), exported, path)), end="\n\n")
        print(
            f"Logits of an adapter after {STEPS} steps, of ours merged and of PEFT's model of the file that ours exported:\n"
        )
        print("| adapter in PEFT | largest logit | largest difference |")
        print("|---|---:|---:|")
        print("\n".join(adapter_line(folder, str(run), exported, path)))
        print(f"\nNF4 of standard normal weights, blocks of 64, beside {BITSANDBYTES.label}: mean errors\n")
        print(
            "| weights | bytes of codes that are equal | ours, scales in 8 bits | bitsandbytes, scales in 8 bits | in 32 bits |"
        )
        print("|---|---:|---:|---:|---:|")
        quantised = alone("_nf4", "beside", [], str(packages(BITSANDBYTES.name, BITSANDBYTES.requirements)))
        for (rows, width), one in zip(_nf4.SHAPES, quantised, strict=True):
            print(
                f"| {rows} x {width} | {one['equal']:.4f} | {one['ours']:.6f} | {one['double']:.6f} | {one['plain']:.6f} |"
            )
        print(
            f"\nTokens a second, on both sides with prompts and without padding (epochs of {MANY} documents or pairs; medians of"
            f" {ROUNDS} runs, ratios of runs made one after the other; TRL: batches of {BATCH}):\n"
        )
        print("| model | | tokens of one | ours | TRL | ratio |")
        print("|---|---|---:|---:|---|---:|")
        print("\n".join(speed_table(folder, str(run), exported, small, path)))


if __name__ == "__main__":
    main()
