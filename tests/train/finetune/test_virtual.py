"""Prompt and prefix tuning: what is computed beside explicit embeddings and caches, in packed rows as alone; runs that train nothing else,
resume to the bit and generate what they were trained for; PEFT's format both ways; and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from corpusmill.common.config import validate
from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.schemas.adapter import AdapterConfig
from corpusmill.schemas.generation import Sampling
from corpusmill.schemas.training import TrainConfig
from corpusmill.train import checkpoint
from corpusmill.train.evaluate.rows import Query
from corpusmill.train.evaluate.scorer import Scorer
from corpusmill.train.generate.generate import open_model, pieces
from corpusmill.train.log.metrics import read_metrics
from corpusmill.train.model.adapters import set_virtual, with_adapters
from corpusmill.train.model.attend import Boundaries
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.parallel.mesh import World
from corpusmill.train.parallel.model import ParallelModel
from corpusmill.train.run_folder import open_run
from tests.train.finetune.models import base_model, config_of, lines, talk
from tests.train.models import model_of
from tests.train.test_commands import command
from tests.train.test_resume import run

KINDS = ("prompt", "prefix")
COUNT = 3
MODELS: dict[str, dict[str, Any]] = {
    "llama": {"kv_heads": 2},
    "qwen3": {"kv_heads": 2, "qk_norm": True},
    "gpt2": {"preset": "gpt2", "max_positions": 64},
}
LINES = [talk(f"say {word}", word.upper()) for word in ("the", "in", "winter", "thin", "her", "rather")]


def virtual(kind: str, name: str = "llama") -> Decoder:
    """A model with virtual tokens of some values."""
    adapter = AdapterConfig.model_validate({"kind": kind, "tokens": COUNT})
    model, chance = with_adapters(model_of(MODELS[name]), adapter), torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.copy_(torch.randn(parameter.shape, generator=chance))
    return model.eval()


class Past:
    """Keys and values before those of a call, as a cache has them."""

    def __init__(self, model: Decoder) -> None:
        found = dict(model.named_parameters())
        self.layers = [
            found[f"layers.{n}.attention.prefix_embedding"].detach() for n in range(model.config.layers)
        ]

    def extend(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        before = self.layers[layer][:, None].expand(-1, len(k), -1, -1, -1)
        return torch.cat((before[0], k), 2), torch.cat((before[1], v), 2)


def by_hand(model: Decoder, ids: Tensor) -> Tensor:
    """Logits of ids [B, T] behind the virtual tokens, which are an input or a cache, and not a part of the model."""
    plain = Decoder(model.config, model.vocab_size)
    plain.load_state_dict(
        {
            n: x
            for n, x in model.state_dict().items()
            if not n.endswith(("prompt_embedding", "prefix_embedding"))
        }
    )
    plain.eval()
    count = ids.shape[1]
    positions = torch.arange(COUNT + count)[None]
    own = positions[:, COUNT:]
    x, within = plain.embed(ids, own, None), Boundaries()
    if model.prompt_embedding is not None:
        x = torch.cat((model.prompt_embedding.expand(len(ids), -1, -1), x), 1)
        if (
            plain.position_embedding is not None
        ):  # learned ones are added to virtual tokens too, as PEFT has it
            x[:, :COUNT] += plain.position_embedding(positions[:, :COUNT])
        own = positions
    else:
        mask = torch.ones(count, COUNT + count).tril(COUNT).bool()[None, None]
        within = Boundaries(mask=mask.expand(len(ids), -1, -1, -1), cache=Past(model))
    for layer in plain.layers.values():
        x, *_ = layer(x, plain.rotation(own), within, ids)
    head = plain.embedding.weight if plain.head is None else plain.head.weight
    return plain.last_norm(x)[:, -count:] @ head.T


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_what_is_computed_is_that_of_an_input_or_a_cache(kind: str, name: str) -> None:
    model, ids = virtual(kind, name), torch.arange(14).view(2, 7)
    found = model(torch.cat((torch.full((2, COUNT), 5), ids), 1))[:, COUNT:]
    torch.testing.assert_close(found, by_hand(model, ids), rtol=1e-5, atol=1e-5)
    other = model(torch.cat((torch.full((2, COUNT), 9), ids), 1))[:, COUNT:]  # whatever ids stand there
    assert torch.equal(found, other)
    assert not torch.allclose(found, model_of(MODELS[name])(ids), atol=0.05)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_documents_of_a_row_each_have_them(kind: str) -> None:
    model, parts = virtual(kind), [torch.arange(5), torch.arange(6, 15), torch.arange(2, 6)]
    with_places = [torch.cat((torch.zeros(COUNT, dtype=torch.int64), part)) for part in parts]
    rows = {
        "tokens": torch.cat(with_places),
        "documents": torch.cat([torch.full((len(one),), n) for n, one in enumerate(with_places)]),
        "positions": torch.cat([torch.arange(len(one)) for one in with_places]),
    }
    found = model(**{name: value[None] for name, value in rows.items()})[0]
    for alone, together in zip(
        with_places, torch.split(found, [len(one) for one in with_places]), strict=True
    ):
        torch.testing.assert_close(together[COUNT:], model(alone[None])[0, COUNT:], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_they_begin_as_words_in_front(kind: str) -> None:
    adapter = AdapterConfig.model_validate({"kind": kind, "tokens": COUNT})
    model, plain = with_adapters(model_of(MODELS["qwen3"]), adapter).eval(), model_of(MODELS["qwen3"]).eval()
    set_virtual(model, seed=4)
    ids, places = torch.arange(7)[None], torch.zeros(1, COUNT, dtype=torch.int64)
    found = model(torch.cat((places, ids), 1))[:, COUNT:]
    prompt = with_adapters(
        model_of(MODELS["qwen3"]), AdapterConfig.model_validate({"kind": "prompt", "tokens": COUNT})
    )
    set_virtual(prompt, seed=4)
    assert prompt.prompt_embedding is not None
    words = (prompt.prompt_embedding[:, None] - plain.embedding.weight).abs().sum(-1).argmin(1)
    wanted = plain(torch.cat((words[None], ids), 1))[:, COUNT:]
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.fixture
def tuned(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    data, base = lines(tmp_path / "lines.jsonl", LINES * 4), base_model(tmp_path / "model")

    def make(name: str, kind: str, **more: Any) -> dict[str, Any]:
        adapter = {"kind": kind, "tokens": COUNT, **more.pop("adapter", {})}
        return config_of(tmp_path / name, data, base, adapter=adapter, **{"optimizer.lr": 0.05, **more})

    return make


def tensors(config: dict[str, Any]) -> dict[str, Tensor]:
    run_of = open_run(config["output"])[1]
    found = checkpoint.load_newest(run_of, {})
    assert found is not None
    return checkpoint.read_tensors(found)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_trains_them_alone_and_resumes_to_the_bit(
    kind: str, tuned: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    more = {"schedule.steps": 40, "optimizer.lr": 0.3}
    whole = tuned("whole", kind, **more)
    run(whole)
    losses = [row["loss"] for row in read_metrics(Folder(whole["output"])) if "loss" in row]
    assert losses[-1] < losses[0] - 0.01  # of a base model with its first values, which few tokens can change
    base = load_file(tmp_path / "model/model.safetensors")
    found = tensors(whole)
    assert torch.equal(found["embedding.weight"], base["model.embed_tokens.weight"])
    names = [name for name in found if name.endswith(f"{kind}_embedding")]
    assert len(names) == (1 if kind == "prompt" else 2)
    parts = tuned("parts", kind, **more)
    run({**parts, "stop_after": 13})
    run(parts)
    for name, value in tensors(parts).items():
        assert torch.equal(value, found[name]), name


@pytest.mark.parametrize("kind", KINDS)
def test_generation_and_scores_are_those_of_the_model_behind_the_places(
    kind: str, tuned: Callable[..., dict[str, Any]]
) -> None:
    made = tuned("run", kind)
    run(made)
    config, folder = open_run(made["output"])
    opened = open_model(config, folder)
    assert opened.runner.virtual == COUNT
    model = open_model(config, folder).runner.model
    ids = opened.prompt("say the")
    wanted, window = list[int](), [0] * COUNT + ids
    for _ in range(8):
        with torch.no_grad():
            token = int(model(torch.tensor([window]))[0, -1, : opened.runner.vocab_size].argmax())
        if token == opened.runner.eos_id:
            break
        wanted.append(token)
        window.append(token)
    events = list(pieces(opened, [ids], Sampling(max_tokens=8, temperature=0), rows=2))
    assert events[-1].request.tokens[: len(wanted)] == wanted
    queries = [Query(ids, [5, 6, 7]), Query(ids[:2], [8]), Query(ids, [9])]
    scorer = Scorer(ParallelModel([model]), config, World(), longest=40)
    for query, answer in zip(queries, scorer.answers(queries), strict=True):
        tokens = torch.tensor([[0] * COUNT + [*query.context, *query.continuation]])
        with torch.no_grad():
            log_p = model(tokens)[0].log_softmax(-1)
        places = range(COUNT + len(query.context) - 1, tokens.shape[1] - 1)
        by_token = [float(log_p[at, token]) for at, token in zip(places, query.continuation, strict=True)]
        assert answer.tokens.tolist() == pytest.approx(by_token, abs=1e-4)
    # A context that is cut keeps them.
    (short,) = Scorer(ParallelModel([model]), config, World(), longest=COUNT + 5).answers(
        [Query([9] * 30 + ids[:3], [5, 6, 7])]
    )
    with torch.no_grad():
        log_p = model(torch.tensor([[0] * COUNT + ids[:3] + [5, 6, 7]]))[0].log_softmax(-1)
    assert short.tokens[0] == pytest.approx(float(log_p[COUNT + 2, 5]), abs=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_pefts_format_both_ways(kind: str, tuned: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    first = tuned("first", kind)
    run(first)
    out = tmp_path / "peft"
    assert "1 tensors" in command("export", first["output"], str(out), "--format", "peft")
    about = json.loads((out / "adapter_config.json").read_text())
    assert about["peft_type"] == f"{kind.upper()}_TUNING" and about["num_virtual_tokens"] == COUNT
    (name,) = load_file(out / "adapter_model.safetensors")
    assert name == "prompt_embeddings"
    second = tuned("second", kind, adapter={"init_from": str(out)}, **{"optimizer.lr": 1e-9})
    run(second)
    for name, value in tensors(first).items():
        torch.testing.assert_close(tensors(second)[name], value, rtol=0, atol=1e-6, msg=name)
    other = tuned("third", kind, adapter={"init_from": str(out), "tokens": COUNT + 1})
    with pytest.raises(UserError, match=f"num_virtual_tokens is {COUNT} there and {COUNT + 1} here"):
        run(other)
    about["prefix_projection"] = True
    (out / "adapter_config.json").write_text(json.dumps(about))
    with pytest.raises(UserError, match="prefix_projection is set there"):
        run(tuned("fourth", kind, adapter={"init_from": str(out)}))
    del about["prefix_projection"]
    (out / "adapter_config.json").write_text(json.dumps(about))
    (out / "adapter_model.safetensors").write_bytes((tmp_path / "model/model.safetensors").read_bytes())
    with pytest.raises(WorkError, match="prompt_embeddings is missing"):
        run(tuned("fifth", kind, adapter={"init_from": str(out)}))
    with pytest.raises(UserError, match="no weights of a model stand for virtual tokens"):
        command("export", first["output"], str(tmp_path / "hf"))
    with pytest.raises(UserError, match="trained virtual tokens, which no weights stand for"):
        run(tuned("sixth", kind) | {"init_from": first["output"]})
    plain = tuned("plain", kind) | {"adapter": None}
    run(plain)
    with pytest.raises(UserError, match="trained virtual tokens, no matrices beside weights"):
        command("generate", plain["output"], "--adapter", first["output"], "--prompt", "a")


def test_what_does_not_go_with_them_is_refused(tuned: Callable[..., dict[str, Any]]) -> None:
    made = tuned("run", "prefix")
    for more, message in (
        ({"adapter": {"kind": "prefix"}}, "tokens: kind prefix needs how many virtual tokens there are"),
        ({"adapter": {"tokens": 3}}, "tokens: kind lora has none: leave it out, or set kind"),
        ({"adapter": {"kind": "prompt", "tokens": 3, "rank": 4}}, "rank: kind prompt has none"),
        (
            {"adapter": {"kind": "prompt", "tokens": 999}},
            "adapter.tokens: 999 are more than half of data.seq",
        ),
        (
            {"objective": {"loss": "simpo"}},
            "is trained on the answers of conversations alone, for the next token",
        ),
        (
            {"adapter": {"kind": "prompt", "tokens": 3}, "parallel": {"pipeline": 2}},
            "all that is trained is in the first stage",
        ),
    ):
        with pytest.raises(UserError, match=message):
            validate(TrainConfig, {**made, **more}, "config")
