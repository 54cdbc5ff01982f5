"""Tensor and expert parallelism as cuts: which parameters are cut along which dimension, and the modules told so.

Column-parallel (dimension 0): q, k, v, gate, up, embedding and head; row-parallel (dimension 1): o, down; stacks of experts
[E, out, in] the same behind their first dimension, which expert parallelism cuts (Shoeybi et al. 2019, Lepikhin et al. 2021).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch.distributed as dist
from torch import nn

from corpusmill.common.errors import UserError
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.model.moe import Experts
from corpusmill.train.model.split import TensorSplit
from corpusmill.train.parallel.expert import Exchange
from corpusmill.train.parallel.mesh import Mesh

COLUMNS = re.compile(r"\.(q|k|v|gate|up)(\.weight|\.bias)?$|^(embedding|head)\.weight$")
ROWS = re.compile(r"\.(o|down)(\.weight)?$")


@dataclass(frozen=True)
class Cut:
    """A parameter's dimension `dim`, of which this process has the `index`-th of `count` equal parts."""

    axis: str  # "tensor" or "expert"
    dim: int
    index: int
    count: int
    group: dist.ProcessGroup


Cuts = dict[str, tuple[Cut, ...]]


def cut(model: Decoder, mesh: Mesh) -> Cuts:
    """Leave of each parameter of `model` (on the meta device) this process's part; the cuts, by name.

    Raises `UserError` if the padded vocabulary cannot be cut.
    """
    tensor, expert = mesh.config.tensor, mesh.config.expert
    if tensor > 1:
        rows = model.config.padded(model.vocab_size)
        if rows % tensor:
            raise UserError(
                f"parallel.tensor: {tensor} does not divide the vocabulary of {rows}: set model.vocab_multiple to a"
                f" multiple of {tensor}"
            )
        split = TensorSplit(mesh.dense.get_group("tensor"))
        for module in model.modules():
            if hasattr(module, "split"):
                module.split = split  # type: ignore[assignment]
    found: Cuts = {}
    for name, parameter in list(model.named_parameters()):
        stack = parameter.ndim == 3
        cuts = []
        if expert > 1 and stack and mesh.experts is not None:
            group = mesh.experts.get_group("expert")
            cuts.append(Cut("expert", 0, dist.get_rank(group), expert, group))
        if tensor > 1 and (COLUMNS.search(name) or ROWS.search(name)):
            group = mesh.dense.get_group("tensor")
            dim = int(stack) + (0 if COLUMNS.search(name) else 1)
            cuts.append(Cut("tensor", dim, dist.get_rank(group), tensor, group))
        if cuts:
            shape = list(parameter.shape)
            for part in cuts:
                shape[part.dim] //= part.count
            owner, _, last = name.rpartition(".")
            setattr(model.get_submodule(owner), last, nn.Parameter(parameter.new_empty(shape)))
            found[name] = tuple(cuts)
    if expert > 1 and mesh.experts is not None:
        for module in model.modules():
            if isinstance(module, Experts):
                module.exchange = Exchange(mesh.experts.get_group("expert"))
    return found
