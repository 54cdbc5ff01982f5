"""The decoder: against a plain reference, documents kept apart, first values that no layout changes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from schemas.model import ModelConfig
from train.model.decoder import Decoder
from train.model.losses import IGNORED
from train.model.rope import rotate, rotation

SMALL = ModelConfig(dim=32, layers=2, heads=4, kv_heads=2, ffn_dim=48, vocab_multiple=8)


def tokens(rows: int = 3, length: int = 20) -> torch.Tensor:
    return torch.randint(0, 50, (rows, length), generator=torch.Generator().manual_seed(0))


def reference(model: Decoder, ids: torch.Tensor) -> torch.Tensor:
    """The same model written out, one row, one head at a time."""

    def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return x / (x.square().mean(-1, keepdim=True) + SMALL.norm_eps).sqrt() * weight

    p = dict(model.named_parameters())
    D = SMALL.dim // SMALL.heads
    out = []
    for row in ids:
        x = p["embedding.weight"][row]
        for i in range(SMALL.layers):
            w = {name.split(".", 2)[2]: value for name, value in p.items() if name.startswith(f"layers.{i}.")}
            h = norm(x, w["attention_norm.weight"])
            heads = []
            for head in range(SMALL.heads):
                group = head // (SMALL.heads // SMALL.key_value_heads)
                q = h @ w["attention.q.weight"][head * D : (head + 1) * D].T
                k = h @ w["attention.k.weight"][group * D : (group + 1) * D].T
                v = h @ w["attention.v.weight"][group * D : (group + 1) * D].T
                for t in range(len(row)):
                    for pair in range(D // 2):
                        angle = torch.tensor(t * SMALL.rope_theta ** (-2 * pair / D))
                        turn = torch.complex(angle.cos(), angle.sin())
                        for z in (q, k):
                            turned = torch.complex(z[t, pair].detach(), z[t, pair + D // 2].detach()) * turn
                            z.data[t, pair], z.data[t, pair + D // 2] = turned.real, turned.imag
                scores = (q @ k.T / D**0.5).masked_fill(
                    torch.ones(len(row), len(row)).triu(1).bool(), -torch.inf
                )
                heads.append(scores.softmax(-1) @ v)
            x = x + torch.cat(heads, -1) @ w["attention.o.weight"].T
            h = norm(x, w["ffn_norm.weight"])
            x = x + (F.silu(h @ w["ffn.gate.weight"].T) * (h @ w["ffn.up.weight"].T)) @ w["ffn.down.weight"].T
        out.append(norm(x, p["norm.weight"]) @ p["embedding.weight"].T)
    return torch.stack(out)


def test_equals_the_model_written_out() -> None:
    model = Decoder(SMALL, 50, seed=1)
    with torch.no_grad():
        torch.testing.assert_close(model(tokens()), reference(model, tokens()), atol=1e-5, rtol=1e-4)


def test_documents_in_one_row_are_as_documents_in_rows_of_their_own() -> None:
    model = Decoder(SMALL, 50, seed=1)
    ids = tokens(1, 20)
    documents = torch.tensor([[0] * 7 + [1] * 13])
    positions = torch.tensor([[*range(7), *range(13)]])
    packed = model(ids, documents=documents, positions=positions)
    torch.testing.assert_close(packed[:, :7], model(ids[:, :7]))
    torch.testing.assert_close(packed[:, 7:], model(ids[:, 7:]))
    # RoPE is relative: the mask alone parts the documents
    torch.testing.assert_close(model(ids, documents=documents), packed, atol=1e-5, rtol=1e-4)


def test_no_position_sees_the_future() -> None:
    model, ids = Decoder(SMALL, 50), tokens(1, 20)
    changed = ids.clone()
    changed[0, 12:] += 1
    assert torch.equal(model(ids)[:, :12], model(changed)[:, :12])
    assert not torch.equal(model(ids)[:, 12:], model(changed)[:, 12:])


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
