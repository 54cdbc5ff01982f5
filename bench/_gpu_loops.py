"""The loops of bench/train_gpu.py: each has `step()`, one optimizer step over `rows` sequences, and the same model."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from bench import _plain_gpt
from bench._gpu_models import MODELS, Case, NotHere, model_keys
from bench._train_ours import make_state, memory_batch, whole
from corpusmill.common.errors import UserError
from corpusmill.train.precision.adapt import compile_layers


class Train:
    """`corpusmill.train.step.train_step`: a config's state, on batches in the device's memory or from the loader."""

    def __init__(self, case: Case, micro: int, rows: int) -> None:
        size = MODELS[case.model]
        try:
            self.state = make_state(
                model_keys(size), size.vocabulary, rows=rows, micro=micro, length=size.length, device=case.device, sources=2,
                optimizer={"kind": case.optimizer}, precision=case.precision, compile=case.compile == "inductor",
            )  # fmt: skip
        except UserError as reason:
            raise NotHere(str(reason)) from None
        if case.compile not in ("", "inductor"):
            compile_layers(whole(self.state), backend=case.compile)
        self.parameters = self.state.model.parameter_count
        self.micro, self.tokens, self.waited, self.folder = micro, rows * size.length, 0.0, None
        if case.data == "loader":
            self.folder = tempfile.TemporaryDirectory()
            self.stream = _stream(Path(self.folder.name), size.vocabulary, size.length, rows)
        else:
            made = [
                memory_batch(rows, size.length, size.vocabulary, number=n, device=case.device)
                for n in range(4)
            ]
            self.stream = _plain_gpt.forever(made)

    def step(self) -> None:
        from corpusmill.train.step import train_step

        began = time.perf_counter()
        batch = next(self.stream)
        self.waited += time.perf_counter() - began
        valid = float(self.tokens) if self.folder is None else float((batch["labels"] >= 0).sum())
        self.state.window.zero_()
        train_step(self.state, batch, valid)

    def loss(self) -> float:
        """Of the last step, nats a token."""
        total, tokens = self.state.window.sum(0).tolist()
        return float(total / max(tokens, 1.0))

    def close(self) -> None:
        if self.folder is not None:
            self.stream.close()
            self.folder.cleanup()


def _stream(folder: Path, vocabulary: int, length: int, rows: int) -> Any:
    try:
        from bench._loader_set import write_set
        from corpusmill.train.data import StreamingTokens

        root = write_set(folder, vocabulary, blocks=1, tars=1)
        return StreamingTokens(root, sequence_length=length, global_batch=rows)
    except ImportError as error:
        raise NotHere(f"{error.name} is not installed, and the loader needs it") from None


class Plain:
    """bench/_plain_gpt.py, compiled as a whole."""

    def __init__(self, case: Case, micro: int, rows: int) -> None:
        size = MODELS[case.model]
        if case.precision != "bf16" or case.optimizer != "adamw":
            raise NotHere("the plain loop has bf16 and AdamW alone")
        self.model = self.make(case)
        self.parameters = sum(p.numel() for p in self.model.parameters())
        self.optimizer = _plain_gpt.make_adamw(self.model)
        self.called = self.compiled(case.compile)
        made = [
            memory_batch(rows, size.length, size.vocabulary, number=n, device=case.device) for n in range(4)
        ]
        self.stream, self.micro, self.count = _plain_gpt.forever(made), micro, rows // micro
        self.number, self.waited, self.last = 0, 0.0, torch.zeros(())

    def make(self, case: Case) -> torch.nn.Module:
        size = MODELS[case.model]
        # As `train` has them: the vocabulary padded, the width of `corpusmill.schemas.model`.
        sizes = _plain_gpt.Sizes(
            -(-size.vocabulary // 64) * 64, size.dim, size.layers, size.heads, size.heads, -(-8 * size.dim // 192) * 64,
            size.length,
        )  # fmt: skip
        with torch.device(case.device):
            return _plain_gpt.PlainGPT(sizes)

    def compiled(self, backend: str) -> Any:
        return torch.compile(self.model, backend=backend, dynamic=False) if backend else self.model

    def step(self) -> None:
        batch = next(self.stream)
        parts = zip(batch["tokens"].split(self.micro), batch["labels"].split(self.micro), strict=True)
        self.number += 1
        self.last = _plain_gpt.step(
            self.model, self.optimizer, parts, self.count, self.number, bf16=True, called=self.called
        )

    def loss(self) -> float:
        return float(self.last)

    def close(self) -> None:
        pass


class Titan(Plain):
    """torchtitan 0.2's Llama 3, compiled as its trainer does (each block, the loss), in the plain loop. Its head is not tied:
    as many FLOPs, more parameters."""

    def make(self, case: Case) -> torch.nn.Module:
        try:
            from torchtitan.components.loss import cross_entropy_loss
            from torchtitan.models.llama3 import Transformer, TransformerModelArgs
        except ImportError as error:
            raise NotHere(f"torchtitan 0.2 cannot be imported: {error}") from None
        size = MODELS[case.model]
        arguments = TransformerModelArgs(
            dim=size.dim, n_layers=size.layers, n_heads=size.heads, vocab_size=-(-size.vocabulary // 64) * 64, multiple_of=64,
            max_seq_len=size.length,
        )  # fmt: skip
        self.score = cross_entropy_loss
        with torch.device(case.device):
            model = Transformer(arguments)
            model.init_weights()
        return model

    def compiled(self, backend: str) -> Any:
        if backend:
            for block in self.model.layers.children():
                block.compile(backend=backend, fullgraph=True)
            self.score = torch.compile(self.score, backend=backend)
        return lambda tokens, labels: self.score(self.model(tokens), labels) / labels.numel()


LOOPS: dict[str, Any] = {"train": Train, "plain": Plain, "torchtitan": Titan}
