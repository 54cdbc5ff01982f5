"""The decoder: against a plain reference, documents kept apart, first values that no layout changes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from corpusmill.common.config import validate
from corpusmill.common.errors import UserError
from corpusmill.schemas.model import ModelConfig
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.model.losses import IGNORED
from corpusmill.train.model.rope import rotate, rotation
from tests.train.models import KINDS, MLA, model_of
from tests.train.models import SMALL as SHAPE

SMALL = ModelConfig(dim=32, layers=2, heads=4, kv_heads=2, ffn_dim=48, vocab_multiple=8)


def tokens(rows: int = 3, length: int = 20) -> torch.Tensor:
    return torch.randint(0, 50, (rows, length), generator=torch.Generator().manual_seed(0))


def reference(model: Decoder, ids: torch.Tensor) -> torch.Tensor:
    """The same model written out, one row, one head, one token's expert at a time."""
    c, p = model.config, model.state_dict()
    D, eps = c.head_size, c.norm_eps

    def normed(x: torch.Tensor, name: str) -> torch.Tensor:
        if c.norm == "layernorm" and not name.endswith(("q_norm", "k_norm")):
            x = x - x.mean(-1, keepdim=True)
        x = x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * p[f"{name}.weight"]
        return x + p.get(f"{name}.bias", 0)

    def linear(x: torch.Tensor, name: str) -> torch.Tensor:
        return x @ p[f"{name}.weight"].T + p.get(f"{name}.bias", 0)

    def acted(up: torch.Tensor, gate: torch.Tensor | None) -> torch.Tensor:
        if gate is not None:
            return gate / (1 + (-gate).exp()) * up
        if c.activation == "relu2":
            return up.clamp(min=0) ** 2
        return 0.5 * up * (1 + ((2 / torch.pi) ** 0.5 * (up + 0.044715 * up**3)).tanh())

    def dense(x: torch.Tensor, name: str) -> torch.Tensor:
        gate = linear(x, f"{name}.gate") if c.activation == "swiglu" else None
        return linear(acted(linear(x, f"{name}.up"), gate), f"{name}.down")

    def experts(x: torch.Tensor, name: str) -> torch.Tensor:
        assert c.moe is not None
        out = dense(x, f"{name}.shared") if c.moe.shared_experts else torch.zeros_like(x)
        for t, h in enumerate(x):
            logits = linear(h, f"{name}.router")
            scores = logits.softmax(-1) if c.moe.scores == "softmax" else 1 / (1 + (-logits).exp())
            chosen = (scores + p[f"{name}.bias"]).argsort(descending=True)[: c.moe.top_k]
            for e in chosen:
                gate = p[f"{name}.gate"][e] @ h if c.activation == "swiglu" else None
                y = p[f"{name}.down"][e] @ acted(p[f"{name}.up"][e] @ h, gate)
                out[t] += scores[e] / scores[chosen].sum() * y
        return out

    def turned(x: torch.Tensor) -> torch.Tensor:
        x, D = x.clone(), x.shape[1]
        for t in range(len(x)):
            for pair in range(D // 2):
                angle = torch.tensor(t * c.rope_theta ** (-2 * pair / D))
                z = torch.complex(x[t, pair], x[t, pair + D // 2]) * torch.complex(angle.cos(), angle.sin())
                x[t, pair], x[t, pair + D // 2] = z.real, z.imag
        return x

    def latent(h: torch.Tensor, name: str, rotated: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """DeepSeek-V2 2024, equations 9 to 19; queries, keys and values of all heads."""
        assert c.mla is not None

        def small(x: torch.Tensor, norm: str) -> torch.Tensor:
            return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * p[f"{name}.{norm}.weight"]

        R, N, P, V = c.mla.kv_rank, c.mla.nope_head_dim, c.mla.rope_head_dim, c.mla.value_head_dim
        if c.mla.q_rank:
            q = linear(small(linear(h, f"{name}.q_a"), "q_a_norm"), f"{name}.q_b")
        else:
            q = linear(h, f"{name}.q")
        both = linear(h, f"{name}.kv_a")
        key, low = both[:, R:], small(both[:, :R], "kv_a_norm")
        key = turned(key) if rotated else key
        made, qs, ks, vs = linear(low, f"{name}.kv_b"), [], [], []
        for head in range(c.heads):
            qh = q[:, head * (N + P) : (head + 1) * (N + P)]
            qs += [qh[:, :N], turned(qh[:, N:]) if rotated else qh[:, N:]]
            ks += [made[:, head * (N + V) : head * (N + V) + N], key]
            vs.append(made[:, head * (N + V) + N : (head + 1) * (N + V)])
        return torch.cat(qs, -1), torch.cat(ks, -1), torch.cat(vs, -1)

    out, first = [], torch.zeros(())
    for row in ids:
        x = p["embedding.weight"][row]
        if c.positions == "learned":
            x = x + p["position_embedding.weight"][: len(row)]
        for i in range(c.layers):
            h = normed(x, f"layers.{i}.attention_norm")
            rotated = c.positions == "rope" and not (c.nope_every and (i + 1) % c.nope_every == 0)
            if c.mla:
                q, k, v = latent(h, f"layers.{i}.attention", rotated)
            else:
                q, k, v = (linear(h, f"layers.{i}.attention.{name}") for name in "qkv")
            if c.value_embeddings == "all" or (c.value_embeddings == "alternate" and (c.layers - i) % 2):
                scale = p[f"layers.{i}.attention.value_scale"].repeat_interleave(D)
                v = v + scale * p[f"layers.{i}.attention.value_embedding.weight"][row]
            first = v if i == 0 else first
            if c.value_residual and i:
                share = p[f"layers.{i}.attention.value_mix"]
                v = share * v + (1 - share) * first
            heads = []
            for head in range(c.heads):
                at = slice(head * D, head * D + D)
                group = slice(
                    head // (c.heads // c.key_value_heads) * D, head // (c.heads // c.key_value_heads) * D + D
                )
                qh, kh, vh = q[:, at], k[:, group], v.split(v.shape[1] // c.key_value_heads, -1)
                if c.qk_norm:
                    qh, kh = (normed(z, f"layers.{i}.attention.{n}_norm") for z, n in ((qh, "q"), (kh, "k")))
                if rotated and not c.mla:
                    qh, kh = turned(qh), turned(kh)
                scores = qh @ kh.T / D * (c.mup_base_head_dim or D) ** 0.5
                if c.attention_softcap:
                    scores = c.attention_softcap * (scores / c.attention_softcap).tanh()
                local = c.window and not (c.global_every and (i + 1) % c.global_every == 0)
                for a, b in itertools.product(range(len(row)), repeat=2):
                    if (c.causal and b > a) or (local and abs(a - b) >= c.window):
                        scores[a, b] = -torch.inf
                if c.attention_sinks:
                    sink = p[f"layers.{i}.attention.sinks"][head].expand(len(row), 1)
                    scores = torch.cat((scores, sink), -1)
                value = vh[head // (c.heads // c.key_value_heads)]
                heads.append(scores.softmax(-1)[:, : len(row)] @ value)
            x = x + linear(torch.cat(heads, -1), f"layers.{i}.attention.o")
            h = normed(x, f"layers.{i}.ffn_norm")
            x = x + (experts if c.has_experts(i) else dense)(h, f"layers.{i}.ffn")
        logits = normed(x, "norm") @ p["embedding.weight" if c.tie_embeddings else "head.weight"].T
        logits = logits * ((c.mup_base_width or c.dim) / c.dim)
        out.append(c.logit_softcap * (logits / c.logit_softcap).tanh() if c.logit_softcap else logits)
    return torch.stack(out)


OTHERS: dict[str, dict[str, Any]] = {
    "relu2 and rope": {"activation": "relu2", "norm": "layernorm", "bias": True, "qk_norm": True},
    "value embeddings": {"value_embeddings": "alternate", "kv_heads": 2, "qk_norm": True},
    "value residual": {"value_residual": True, "kv_heads": 2, "value_embeddings": "alternate"},
    "latent, local": {
        "mla": {**MLA, "q_rank": 12}, "window": 7, "global_every": 2, "nope_every": 3, "attention_sinks": True, "attention_softcap": 0.5,
    },
    "latent, both sides": {"mla": {**MLA, "value_head_dim": 4}, "causal": False, "norm": "layernorm", "activation": "gelu"},
    "capped": {"attention_softcap": 0.5, "logit_softcap": 0.3, "kv_heads": 2},
    "sinks": {"attention_sinks": True, "window": 7, "global_every": 3, "nope_every": 1},
    "both sides": {"causal": False, "window": 7, "global_every": 3, "preset": "gpt2"},
    "both sides, sinks": {"causal": False, "window": 4, "global_every": 2, "attention_sinks": True, "kv_heads": 2},
    "both sides, capped": {"causal": False, "attention_softcap": 0.5},
    "experts without gate": {"preset": "gpt2", "moe": {"experts": 4, "top_k": 3, "every": 2, "shared_experts": 1}},
}  # fmt: skip
WRITTEN_OUT = {kind: s for kind, (_, s) in KINDS.items() if "rope_scaling" not in s} | OTHERS


@pytest.mark.parametrize("kind", WRITTEN_OUT)
def test_equals_the_model_written_out(kind: str) -> None:
    model = model_of(WRITTEN_OUT[kind])
    with torch.no_grad():
        torch.testing.assert_close(model(tokens()), reference(model, tokens()), atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("causal", [True, False])
def test_documents_in_one_row_are_as_documents_in_rows_of_their_own(causal: bool) -> None:
    model = Decoder(SMALL.model_copy(update={"causal": causal}), 50, seed=1)
    ids = tokens(1, 20)
    documents = torch.tensor([[0] * 7 + [1] * 13])
    positions = torch.tensor([[*range(7), *range(13)]])
    packed = model(ids, documents=documents, positions=positions)
    torch.testing.assert_close(packed[:, :7], model(ids[:, :7]))
    torch.testing.assert_close(packed[:, 7:], model(ids[:, 7:]))
    # RoPE is relative: the mask alone parts the documents
    torch.testing.assert_close(model(ids, documents=documents), packed, atol=1e-5, rtol=1e-4)


def test_a_window_counts_the_positions_of_texts_that_share_their_beginning() -> None:
    """An answer behind another one in the row is as near to the prompt as if it stood there alone."""
    model = model_of({"window": 4, "global_every": 2})
    ids, documents = tokens(1, 10), torch.tensor([[0] * 4 + [1] * 3 + [2] * 3])
    positions = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 4, 5, 6]])
    sees = torch.tensor([[[1, 0, 0], [1, 1, 0], [1, 0, 1]]], dtype=torch.bool)
    shared = model(ids, documents=documents, positions=positions, ancestors=sees)
    alone = model(torch.cat((ids[:, :4], ids[:, 7:]), 1))
    torch.testing.assert_close(shared[:, 7:], alone[:, 4:], atol=1e-5, rtol=1e-4)
    wide = model_of({"window": 20, "global_every": 2})
    assert not torch.allclose(
        wide(ids, documents=documents, positions=positions, ancestors=sees)[:, 7:], alone[:, 4:]
    )


def test_no_position_sees_the_future() -> None:
    model, ids = Decoder(SMALL, 50), tokens(1, 20)
    changed = ids.clone()
    changed[0, 12:] += 1
    assert torch.equal(model(ids)[:, :12], model(changed)[:, :12])
    assert not torch.equal(model(ids)[:, 12:], model(changed)[:, 12:])


def test_from_both_sides_a_position_sees_what_follows_within_its_window() -> None:
    model, ids = model_of({"causal": False, "window": 3, "layers": 2}), tokens(1, 20)
    changed = ids.clone()
    changed[0, 12] = (changed[0, 12] + 1) % 50
    differs = (model(ids) != model(changed)).any(-1)[0]
    # Two layers reach two positions each, to either side.
    assert differs[8:17].all() and not differs[:8].any() and not differs[17:].any()


def test_ignored_labels_cost_nothing() -> None:
    model, ids = Decoder(SMALL, 50), tokens()
    labels = ids.roll(-1, 1)
    labels[:, 5:9] = IGNORED
    loss = model(ids, labels)
    assert loss.shape == ids.shape and (loss[:, 5:9] == 0).all() and (loss[:, :5] > 0).all()
    full = F.cross_entropy(model(ids).flatten(0, 1), labels.flatten(), reduction="sum")
    torch.testing.assert_close(loss.sum(), full)


def test_first_values_depend_on_seed_and_name_alone() -> None:
    small, deep = Decoder(SMALL, 50, seed=3), Decoder(SMALL.model_copy(update={"layers": 3}), 50, seed=3)
    torch.manual_seed(99)
    again = Decoder(SMALL, 50, seed=3)
    for (name, a), b in zip(small.named_parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b), name
    key = "layers.1.ffn.gate.weight"
    assert torch.equal(small.get_parameter(key), deep.get_parameter(key))
    assert not torch.equal(small.get_parameter(key), Decoder(SMALL, 50, seed=4).get_parameter(key))
    assert not torch.equal(small.get_parameter(key), small.get_parameter("layers.0.ffn.gate.weight"))


def test_rotation_keeps_lengths_and_depends_on_distance() -> None:
    x, y = torch.randn(1, 1, 1, 8), torch.randn(1, 1, 1, 8)

    def at(z: torch.Tensor, place: int) -> torch.Tensor:
        return rotate(z, rotation(torch.tensor([[place]]), 8, 100.0))

    torch.testing.assert_close(at(x, 5).norm(), x.norm())
    torch.testing.assert_close(
        (at(x, 9) * at(y, 4)).sum(), (at(x, 105) * at(y, 100)).sum(), atol=1e-4, rtol=1e-4
    )


@pytest.mark.parametrize("tied", [True, False])
def test_counts(tied: bool) -> None:
    config = SMALL.model_copy(update={"tie_embeddings": tied})
    model = Decoder(config, 50)
    head = 56 * 32  # 50 padded to a multiple of 8
    layer = 32 * 32 + 2 * 32 * 16 + 32 * 32 + 3 * 32 * 48
    assert model.parameter_count == head * (1 if tied else 2) + 2 * (layer + 64) + 32
    assert model.flops_per_token(20) == 6 * (head + 2 * layer) + 6 * 2 * 32 * 20


def test_counts_of_local_layers() -> None:
    """Of 20 positions within a window of 5, the first 5 attend to half of it, the others to all."""
    config = ModelConfig(dim=32, layers=3, heads=4, window=5, global_every=3)
    assert config.windows == {0: 5, 1: 5}
    local, whole = (
        Decoder(c, 64).flops_per_token(20) for c in (config, ModelConfig(dim=32, layers=3, heads=4))
    )
    attended = (5 * 2.5 + 15 * 5) / 20
    assert whole - local == 2 * 12 * 32 * (10 - attended)
    wide = config.model_copy(update={"window": 20})
    assert Decoder(wide, 64).flops_per_token(20) == whole


def test_counts_of_other_kinds() -> None:
    """Look-ups and biases cost nothing; of 8 experts 2 and the shared ones are at work, and the router."""
    gpt2 = Decoder(ModelConfig(preset="gpt2", dim=32, layers=2, heads=4, max_positions=20), 64)
    matrices, vectors = 4 * 32 * 32 + 2 * 32 * 128, 4 * 32 + 128 + 32 + 4 * 32
    assert gpt2.parameter_count == 64 * 32 + 20 * 32 + 2 * (matrices + vectors) + 2 * 32
    assert gpt2.flops_per_token(10) == 6 * (64 * 32 + 2 * matrices) + 6 * 2 * 32 * 10
    moe = {"experts": 8, "ffn_dim": 16, "shared_experts": 3, "first": 1}
    sparse = Decoder(ModelConfig(dim=32, layers=3, heads=4, head_dim=16, ffn_dim=48, moe=moe), 64)
    attention, dense, expert = 4 * 32 * 64, 3 * 32 * 48, 3 * 32 * 16
    every = 64 * 32 + 3 * attention + dense + 2 * 8 * 32
    assert sparse.parameter_count == every + 2 * (8 + 3) * expert + 7 * 32
    assert sparse.flops_per_token(10) == 6 * (every + 2 * (2 + 3) * expert) + 6 * 3 * 64 * 10


def test_other_losses_are_in_the_gradient_and_not_in_the_loss() -> None:
    moe = {"experts": 4, "balance": "loss", "balance_loss": 0.5, "router_z_loss": 0.25, "first": 1}
    model = Decoder(ModelConfig.model_validate({**SHAPE, "z_loss": 0.1, "moe": moe}), 50, seed=1)
    ids = tokens()
    labels = ids.roll(-1, 1)
    labels[:, 5:9] = IGNORED
    scored = (labels != IGNORED).float()
    hidden: dict[str, torch.Tensor] = {}
    handles = [
        model.norm.register_forward_hook(lambda _m, _i, y: hidden.update(last=y)),
        model.layers["1"].ffn.register_forward_pre_hook(lambda _m, x: hidden.update({"1": x[0]})),
        model.layers["2"].ffn.register_forward_pre_hook(lambda _m, x: hidden.update({"2": x[0]})),
    ]
    loss = model(ids, labels)
    for handle in handles:
        handle.remove()
    torch.testing.assert_close(loss, model.eval()(ids, labels))
    wanted = {
        "z_loss": 0.1 * ((hidden["last"] @ model.embedding.weight.T).logsumexp(-1) ** 2 * scored).sum(),
        "balance_loss": torch.zeros(()), "router_z_loss": torch.zeros(()),
    }  # fmt: skip
    for number in ("1", "2"):
        logits = hidden[number] @ model.layers[number].ffn.router.weight.T
        share = torch.zeros(3, 4)
        for row, t in ((row, t) for row in range(3) for t in range(20)):
            share[row, logits[row, t].topk(2).indices] += 1 / 40
        scores = logits.sigmoid()
        balance = 4 * (share[:, None] * scores / scores.sum(-1, keepdim=True)).sum(-1)
        wanted["balance_loss"] = wanted["balance_loss"] + 0.5 * (balance * scored).sum()
        wanted["router_z_loss"] = wanted["router_z_loss"] + 0.25 * (logits.logsumexp(-1) ** 2 * scored).sum()
    parameters = list(model.parameters())
    got = torch.autograd.grad(loss.sum(), parameters, retain_graph=True)
    model.train()
    expected = torch.autograd.grad(sum(wanted.values()) + model.eval()(ids, labels).sum(), parameters)
    for (name, _), a, b in zip(model.named_parameters(), got, expected, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4, msg=name)
    sums = model.statistics.take()
    expected = {name: float(value.detach()) for name, value in wanted.items()}
    assert sums.pop("load").sum(1).tolist() == [0] + [3 * 20 * 2] * 2 and model.statistics.sums == {}
    assert {name: float(value) for name, value in sums.items()} == pytest.approx(expected, rel=1e-5)


def test_a_chunked_loss_is_the_same() -> None:
    whole = Decoder(SMALL, 50, seed=1)
    parts = Decoder(SMALL.model_copy(update={"loss_chunk": 7}), 50, seed=1)
    losses = [model(tokens(), tokens().roll(-1, 1)) for model in (whole, parts)]
    torch.testing.assert_close(*losses)
    for a, b in zip(
        *(
            torch.autograd.grad(x.sum(), list(m.parameters()))
            for x, m in zip(losses, (whole, parts), strict=True)
        ),
        strict=True,
    ):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", ["llama", "glm4"])
def test_layers_compile_whole_and_stay_the_same(kind: str) -> None:
    """aot_eager: all of tracing, nothing of code generation. `fullgraph`: a break would raise."""
    model = model_of(KINDS[kind][1]).train()
    ids, documents = tokens(), (torch.arange(20) // 7).expand(3, 20)
    found = []
    for _ in range(2):
        loss = model(ids, ids.roll(-1, 1), documents)
        found.append((loss, *torch.autograd.grad(loss.sum(), list(model.parameters()))))
        for layer in model.layers.values():
            layer.compile(fullgraph=True, backend="aot_eager")
    for eager, compiled in zip(*found, strict=True):
        torch.testing.assert_close(compiled, eager, atol=1e-5, rtol=1e-4)


def test_the_meta_device_makes_no_numbers() -> None:
    with torch.device("meta"):
        model = Decoder(SMALL, 50)
    assert (
        all(p.is_meta for p in model.parameters())
        and model.parameter_count == Decoder(SMALL, 50).parameter_count
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"preset": "gpt3"}, "did you mean 'gpt2'?"),
        ({"head_dim": 7}, "set head_dim to 8"),
        ({"preset": "gpt2", "rope_scaling": {"kind": "linear", "factor": 2}}, "set positions to rope"),
        ({"rope_scaling": {"kind": "yarn", "factor": 2, "beta_fast": 1}}, "beta_fast 1 must be above beta_slow 1"),
        ({"rope_scaling": {"kind": "yarn", "factor": 1}}, "rope_scaling.factor"),
        ({"moe": {"experts": 4, "top_k": 5}}, "set top_k to 4"),
        ({"moe": {"experts": 4, "first": 4}}, "set moe.first to 3 or less"),
        ({"moe": {"experts": 4, "blance": "bias"}}, "did you mean 'balance'?"),
    ],
)  # fmt: skip
def test_impossible_models_name_the_number_to_change(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        validate(ModelConfig, settings, "c.yaml")
    assert message in str(error.value)


def test_a_preset_fills_in_what_is_not_given() -> None:
    config = ModelConfig(preset="gpt2", bias=False)
    assert (config.norm, config.positions, config.activation, config.bias) == (
        "layernorm",
        "learned",
        "gelu",
        False,
    )
    assert ModelConfig.model_validate(config.model_dump()) == config and config.hidden == 4 * config.dim
    assert ModelConfig().activation == "swiglu"
