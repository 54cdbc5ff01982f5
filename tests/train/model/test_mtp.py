"""Multi-token prediction: losses and gradients against a model written out a document and a head at a time, and what it leaves alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from corpusmill.common.config import validate
from corpusmill.common.errors import UserError
from corpusmill.schemas.model import ModelConfig
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.model.losses import IGNORED
from corpusmill.train.model.mtp import further
from tests.train.models import model_of

LENGTH = 14
Params = dict[str, torch.Tensor]


def rows() -> dict[str, torch.Tensor]:
    """Three rows, of several documents each: some too short for two further tokens, some labels not scored."""
    generator = torch.Generator().manual_seed(4)
    ids = torch.randint(0, 90, (3, LENGTH + 1), generator=generator)
    labels = ids[:, 1:].clone()
    labels[0, 3] = labels[2, :5] = IGNORED
    starts = torch.zeros(3, LENGTH, dtype=torch.long)
    for row, places in enumerate(((6,), (1, 3, 11), (13,))):
        starts[row, list(places)] = 1
    place = torch.arange(LENGTH).expand(3, LENGTH)
    positions = place - torch.where(starts > 0, place, 0).cummax(1).values
    return {"tokens": ids[:, :-1], "labels": labels, "documents": starts.cumsum(1), "positions": positions}


def normed(x: torch.Tensor, p: Params, name: str, config: ModelConfig) -> torch.Tensor:
    if config.norm == "layernorm":
        x = x - x.mean(-1, keepdim=True)
    x = x / (x.square().mean(-1, keepdim=True) + config.norm_eps).sqrt() * p[f"{name}.weight"]
    return x + p.get(f"{name}.bias", torch.zeros(()))


def layer(x: torch.Tensor, p: Params, name: str, config: ModelConfig) -> torch.Tensor:
    """One layer on one document [t, C]."""
    D, length = config.head_size, len(x)

    def linear(x: torch.Tensor, part: str) -> torch.Tensor:
        return x @ p[f"{name}.{part}.weight"].T + p.get(f"{name}.{part}.bias", torch.zeros(()))

    def turned(x: torch.Tensor) -> torch.Tensor:
        angles = torch.arange(length)[:, None] * config.rope_theta ** (-2 * torch.arange(D // 2) / D)
        z = torch.complex(x[:, : D // 2], x[:, D // 2 :]) * torch.polar(torch.ones_like(angles), angles)
        return torch.cat((z.real, z.imag), -1)

    h, heads = normed(x, p, f"{name}.attention_norm", config), []
    q, k, v = (linear(h, f"attention.{part}") for part in "qkv")
    for head in range(config.heads):
        other = head // (config.heads // config.key_value_heads)
        qh, kh, vh = (
            q[:, head * D : head * D + D],
            k[:, other * D : other * D + D],
            v[:, other * D : other * D + D],
        )
        if config.positions == "rope":
            qh, kh = turned(qh), turned(kh)
        scores = qh @ kh.T / D * (config.mup_base_head_dim or D) ** 0.5
        heads.append(scores.masked_fill(torch.ones(length, length).triu(1) > 0, -torch.inf).softmax(-1) @ vh)
    x = x + linear(torch.cat(heads, -1), "attention.o")
    h = normed(x, p, f"{name}.ffn_norm", config)
    up = linear(h, "ffn.up")
    act = (
        F.silu(linear(h, "ffn.gate")) * up
        if config.activation == "swiglu"
        else F.gelu(up, approximate="tanh")
    )
    return x + linear(act, "ffn.down")


def by_hand(
    p: Params, config: ModelConfig, batch: dict[str, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """(sum of the losses of the next token; of depth k = 1, 2, ... those of the k-th token after it): a document at a time."""
    assert config.mtp
    head = p["embedding.weight"] if config.tie_embeddings else p["head.weight"]
    plain, more = torch.zeros(()), [torch.zeros(()) for _ in range(config.mtp)]

    def loss(x: torch.Tensor, name: str, labels: torch.Tensor) -> torch.Tensor:
        logits = normed(x, p, name, config) @ head.T * ((config.mup_base_width or config.dim) / config.dim)
        if config.logit_softcap:
            logits = config.logit_softcap * (logits / config.logit_softcap).tanh()
        return F.cross_entropy(logits, labels, reduction="sum", ignore_index=IGNORED)

    for ids, labels, documents in zip(batch["tokens"], batch["labels"], batch["documents"], strict=True):
        for document in documents.unique():
            mine, wanted = ids[documents == document], labels[documents == document]
            x = p["embedding.weight"][mine]
            if config.positions == "learned":
                x = x + p["position_embedding.weight"][: len(mine)]
            for i in range(config.layers):
                x = layer(x, p, f"layers.{i}", config)
            plain = plain + loss(x, "norm", wanted)
            for k in range(1, config.mtp + 1):
                name, left = f"mtp.{k - 1}", len(mine) - k
                if left <= 0:
                    break
                token = p["embedding.weight"][mine[k:]]
                joined = torch.cat(
                    (
                        normed(x[:left], p, f"{name}.stream_norm", config),
                        normed(token, p, f"{name}.token_norm", config),
                    ),
                    -1,
                )
                x = layer(joined @ p[f"{name}.project.weight"].T, p, f"{name}.layer", config)
                more[k - 1] = more[k - 1] + loss(x, f"{name}.norm", wanted[k:])
    return plain, torch.stack(more)


CASES: dict[str, dict[str, Any]] = {
    "one": {"mtp": 1}, "two": {"mtp": 2, "kv_heads": 2, "mtp_weight": 0.7},
    "untied, in chunks": {"mtp": 3, "tie_embeddings": False, "loss_chunk": 5, "mtp_weight": 0.1},
    "gpt2": {"mtp": 2, "preset": "gpt2", "max_positions": 16}, "capped": {"mtp": 1, "logit_softcap": 0.5},
    "mup": {"mtp": 1, "mup_base_width": 8, "mup_base_head_dim": 2}, "deeper than a document": {"mtp": 8, "layers": 1},
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_losses_and_gradients_are_those_of_the_model_written_out(case: str) -> None:
    model = model_of(CASES[case])
    config, batch = model.config, rows()
    params = {name: value.detach().clone().requires_grad_() for name, value in model.named_parameters()}
    plain, more = by_hand(params, config, batch)
    torch.autograd.backward(plain + config.mtp_weight * more.mean())
    model.train()
    losses = model(**batch)
    torch.testing.assert_close(
        losses.sum(), plain, atol=1e-4, rtol=1e-5
    )  # its value is the next token's alone
    losses.sum().backward()
    found = model.statistics.take()["loss_mtp"]
    torch.testing.assert_close(found.float(), more.mean(), atol=1e-4, rtol=1e-5)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        wanted = params[name].grad
        if wanted is None:  # a depth that no document is long enough for
            wanted = torch.zeros_like(parameter)
        assert torch.allclose(parameter.grad, wanted, atol=2e-5, rtol=2e-4), name
        # A bias of all keys changes no softmax; depths beyond every document learn nothing.
        idle = name.endswith("k.bias") or config.mtp == 8
        assert not name.startswith("mtp.") or idle or parameter.grad.norm() > 1e-3, name


def test_one_document_a_row_needs_no_marks() -> None:
    model, batch = model_of({"mtp": 2}).train(), rows()
    whole = {name: batch[name] for name in ("tokens", "labels")}
    marked = {
        **whole,
        "documents": torch.zeros_like(batch["documents"]),
        "positions": torch.arange(LENGTH).expand(3, LENGTH),
    }
    sums = []
    for given in (whole, marked):
        model(**given).sum().backward()
        sums.append(
            (
                model.statistics.take()["loss_mtp"],
                [p.grad.clone() for p in model.parameters() if p.grad is not None],
            )
        )
        model.zero_grad()
    torch.testing.assert_close(sums[0], sums[1])


def test_what_lies_in_other_documents_changes_nothing() -> None:
    """Other tokens in the second document of a row, and in those after: the gradients of the first one's losses stay."""
    model = model_of({"mtp": 2}).train()
    batch = rows()
    batch["labels"] = batch["labels"].where(batch["documents"] == 0, IGNORED)
    grads = []
    for change in (0, 17):
        tokens = torch.where(batch["documents"] == 0, batch["tokens"], (batch["tokens"] + change) % 90)
        model(**{**batch, "tokens": tokens}).sum().backward()
        grads.append(
            [
                p.grad.clone()
                for n, p in model.named_parameters()
                if p.grad is not None and "embedding" not in n
            ]
        )
        model.zero_grad()
    for first, second in zip(*grads, strict=True):
        torch.testing.assert_close(first, second)


def test_evaluation_and_first_values_are_those_of_the_model_without() -> None:
    """Options of the other layers are none of these."""
    more = {
        "window": 4, "global_every": 2, "nope_every": 2, "value_embeddings": "all", "value_residual": True,
        "moe": {"experts": 4, "top_k": 2, "ffn_dim": 24},
    }  # fmt: skip
    given = {"dim": 32, "layers": 3, "heads": 4, "ffn_dim": 48, "vocab_multiple": 8, **more}
    plain = Decoder(ModelConfig.model_validate(given), 90, seed=3)
    model = Decoder(ModelConfig.model_validate({**given, "mtp": 2}), 90, seed=3)
    values = model.state_dict()
    assert all(torch.equal(value, values[name]) for name, value in plain.state_dict().items())
    extra = {name for name in values if name not in plain.state_dict()}
    assert extra and all(name.startswith("mtp.") for name in extra)
    assert not any(word in name for name in extra for word in ("value", "router", "shared"))
    assert {name.split(".", 2)[2] for name in extra if ".0." in name} == {
        name.split(".", 2)[2] for name in extra if ".1." in name
    }
    batch = rows()
    assert torch.equal(model.eval()(**batch), plain.eval()(**batch))
    assert torch.equal(model(batch["tokens"]), plain(batch["tokens"])) and not model.statistics.sums
    assert sorted(model.experts) == [0, 1, 2]
    model.train()(**batch).sum().backward()  # with all of that at once
    assert all(p.grad is not None for p in model.mtp.parameters())  # type: ignore[union-attr]
    assert model.parameter_count == sum(p.numel() for p in model.parameters())


def test_dropout_is_the_same_again_and_another_in_each_layer() -> None:
    model, batch = model_of({"mtp": 2, "dropout": 0.3}).train(), rows()
    sums = []
    for keys in ([1, 2, 3], [1, 2, 3], [4, 5, 6]):
        model(**batch, keys=torch.tensor(keys))
        sums.append(float(model.statistics.take()["loss_mtp"]))
    assert sums[0] == sums[1] != sums[2]


def test_flops_count_layers_joins_and_the_head_once_more() -> None:
    """Counted by PyTorch: all products of a training pass but attention's, which the formula halves."""
    for config in ({"mtp": 2}, {"mtp": 1, "tie_embeddings": False}):
        model = model_of(config).train()
        tokens = torch.randint(0, 90, (2, 12))
        counts = []
        with FlopCounterMode(display=False) as counter:
            model(tokens, tokens).sum().backward()
        for operation, count in counter.get_flop_counts()["Global"].items():
            if "attention" not in str(operation):
                counts.append(count)
        attention = 6 * 12 * 32 * (3 + (model.config.mtp or 0))  # 6 x length x heads x head_size a layer
        formula = model.flops_per_token(12) - attention
        # Nothing needs the gradient of a tied embedding's look-up; of an untied model's first inputs neither.
        assert sum(counts) / tokens.numel() == pytest.approx(formula, rel=0.01)


def test_further_moves_to_the_left() -> None:
    x = torch.arange(6).view(2, 3)
    assert further(x, 1, -1).tolist() == [[1, 2, -1], [4, 5, -1]]
    assert further(x, 5, -1).tolist() == [[-1] * 3] * 2


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"model": {"mtp": 1, "causal": False}, "data": {"masking": {}}}, "mtp predicts tokens after the next, and causal is false"),
        ({"model": {"mtp": 1, "layers": 4}, "parallel": {"pipeline": 2}}, "pipeline 2: model.mtp needs .*: set pipeline to 1"),
        ({"model": {"mtp": 1}, "parallel": {"context": 2}}, "context 2: model.mtp needs .*: set context to 1"),
        ({"model": {"mtp": 1}, "distillation": {"teacher": "x"}}, "has no further tokens: set model.mtp to null"),
        ({"model": {"mtp": 1}, "regularization": {"label_smoothing": 0.1}}, "regularization.label_smoothing: .* leave it or model.mtp out"),
        ({"model": {"mtp": 1}, "regularization": {"adversarial": 1.0}}, "would count model.mtp twice"),
        ({"model": {"mtp": 1}, "init_from": "x", "adapter": {}}, "adapter: model.mtp trains layers that generation does not use"),
        ({"model": {"mtp": 0}}, "model.mtp: input should be greater than or equal to 1, is 0"),
        (
            {"model": {"mtp": 1}, "init_from": "x", "objective": {"loss": "dpo"}, "data": {"conversations": {}}},
            "to which model.mtp adds: leave model.mtp out",
        ),
    ],
)  # fmt: skip
def test_what_it_does_not_go_with_is_named(more: dict[str, Any], message: str) -> None:
    given = {"name": "x", **more, "data": {"shards": "-", **more.get("data", {})}}
    with pytest.raises(UserError, match=message):
        validate(TrainConfig, given, "config")


def test_a_config_without_it_does_not_know_it() -> None:
    kept = ModelConfig().model_dump()
    assert "mtp" not in kept and "mtp_weight" not in kept
    again = ModelConfig.model_validate(ModelConfig(mtp=2, mtp_weight=0.1).model_dump())
    assert (again.mtp, again.mtp_weight) == (2, 0.1)
