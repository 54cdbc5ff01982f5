"""Folds: copies stay together, held-out documents have no label in any batch, and what they hold changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.data import FoldConfig
from corpusmill.schemas.tables import ID, LEDGER
from corpusmill.schemas.training import TrainConfig
from corpusmill.train import checkpoint
from corpusmill.train.data.folds import document_ids, folds
from corpusmill.train.data.pack import IGNORED
from corpusmill.train.data.shards import Shards, open_shards, with_fold
from corpusmill.train.data.stream import StreamingTokens
from corpusmill.train.evaluate.baselines import all_blocks
from corpusmill.train.trainer import train
from tests.train import conftest
from tests.train.conftest import EOS, write_shards

Make = Callable[..., dict[str, Any]]


def kept_documents(shards: Shards) -> dict[str, list[bytes]]:
    """The ids of the train documents of each source, in their order."""
    return {
        name: [one for block in document_ids(source) for one in block.to_pylist()]
        for name, source in shards.train.items()
    }


def write_ledger(folder: Path, shards: Shards) -> dict[bytes, bytes]:
    """A ledger in two partitions, in which every fifth document of `wiki` is a copy of one of `books`; document -> cluster."""
    documents = kept_documents(shards)
    clusters: dict[bytes, bytes] = {}
    for copy, original in zip(documents["wiki"][::5], documents["books"], strict=False):
        clusters[copy] = clusters[original] = original
    rows = [
        {"doc_id": one, "source": name, "locator": "", "outcome": "kept", "stage": "ledger", "cluster_id": clusters.get(one)}
        for name, own in documents.items()
        for one in own
    ]  # fmt: skip
    rows.append({**rows[0], "doc_id": bytes(16), "outcome": "removed", "cluster_id": rows[1]["doc_id"]})
    folder.mkdir(parents=True, exist_ok=True)
    columns = {field.name: pa.array([row.get(field.name) for row in rows], field.type) for field in LEDGER}
    table = pa.table(columns, schema=LEDGER)
    pq.write_table(table.slice(0, 40), folder / "a.parquet")
    pq.write_table(table.slice(40), folder / "b.parquet")
    assert len(clusters) > 20
    return clusters


@pytest.fixture
def ledger(shards: Folder, tmp_path: Path) -> tuple[str, dict[bytes, bytes]]:
    return str(tmp_path / "ledger"), write_ledger(tmp_path / "ledger", open_shards(shards.url))


def held_documents(shards: Folder, fold: FoldConfig) -> set[bytes]:
    found = with_fold(open_shards(shards.url), fold)
    held = set()
    for source in found.train.values():
        assert source.held is not None
        for ids, chosen in zip(document_ids(source), source.held, strict=True):
            held |= {one for one, out in zip(ids.to_pylist(), chosen.tolist(), strict=True) if out}
    assert all(source.held is None for source in found.validation.values())
    return held


def test_every_document_is_held_out_once_and_copies_together(
    shards: Folder, ledger: tuple[str, dict[bytes, bytes]]
) -> None:
    where, clusters = ledger
    parts = [held_documents(shards, FoldConfig(of=4, index=i, ledger=where)) for i in range(4)]
    everything = {one for own in kept_documents(open_shards(shards.url)).values() for one in own}
    assert set.union(*parts) == everything and sum(map(len, parts)) == len(everything)
    assert all(len(everything) / 4 * 0.6 < len(part) < len(everything) / 4 * 1.4 for part in parts)
    of = {one: index for index, part in enumerate(parts) for one in part}
    together = [of[one] == of[cluster] for one, cluster in clusters.items()]
    assert all(together)
    # By chance a quarter would be, and they are in several folds.
    assert len({of[cluster] for cluster in clusters.values()}) == 4
    others = held_documents(shards, FoldConfig(of=4, index=0, ledger=where, seed=1))
    assert others != parts[0] and others <= everything


def test_folds_are_even_and_depend_on_the_id_alone() -> None:
    ids = pa.array([np.random.default_rng(n).bytes(16) for n in range(3000)], ID)
    found = folds(ids, 3, 5)
    assert (np.bincount(found, minlength=5) > 500).all()
    assert folds(ids.slice(7, 10), 3, 5).tolist() == found[7:17].tolist()
    assert (folds(ids, 4, 5) != found).mean() > 0.7


@pytest.mark.parametrize("packing", ["windows", "best_fit"])
def test_held_out_documents_have_no_label(
    shards: Folder, ledger: tuple[str, dict[bytes, bytes]], packing: str
) -> None:
    where, _ = ledger
    settings: dict[str, Any] = {"sequence_length": 24, "global_batch": 8, "packing": packing, "seed": 3}
    plain = StreamingTokens(shards.url, **settings)
    folded = StreamingTokens(shards.url, **settings, fold={"of": 3, "index": 1, "ledger": where})
    assert folded.plan.sha256 == plain.plan.sha256
    opened = with_fold(open_shards(shards.url), FoldConfig(of=3, index=1, ledger=where))
    out = total = 0
    for _ in range(30):
        whole, part = next(iter(plain)), next(iter(folded))
        for name in ("tokens", "documents", "positions", "n", "source_id"):
            assert (whole[name] == part[name]).all(), name
        ignored = part["labels"] == IGNORED
        assert (part["labels"][~ignored] == whole["labels"][~ignored]).all()
        # A document of a row is held out as a whole.
        for row in range(8):
            for document in whole["documents"][row].unique():
                mine = ignored[row][whole["documents"][row] == document]
                assert bool(mine.all()) == bool(mine.any())
        out, total = out + int(ignored.sum()), total + ignored.numel()
    held = sum(
        int(np.repeat(chosen, np.diff(block.starts, append=len(block.tokens))).sum())
        for source in opened.train.values()
        for block, chosen in zip(all_blocks(source), source.held or (), strict=True)
    )
    every = sum(source.index.ntokens for source in opened.train.values())
    assert out / total == pytest.approx(held / every, abs=0.05) and 0.2 < held / every < 0.5


def test_what_a_held_out_document_holds_changes_no_weight(
    config: Make, ledger: tuple[str, dict[bytes, bytes]], shards: Folder, tmp_path: Path
) -> None:
    """Trained on shards in which the tokens of held-out documents are others, the model is the same, bit by bit."""
    where, _ = ledger
    fold = FoldConfig(of=3, index=0, ledger=where)
    held = held_documents(shards, fold)
    of_shards = with_fold(open_shards(shards.url), fold)
    # Blocks in the order in which they are written again: of each source, train before validation.
    chosen = {name: iter(source.held or ()) for name, source in of_shards.train.items()}
    made, names, calls = conftest.document_tokens, list(conftest.SOURCES), {"n": 0}
    blocks = [sum(1 for _ in source.blocks) for source in of_shards.train.values()]

    def altered(rng: np.random.Generator, size: int, flavour: int) -> tuple[list[int], list[int]]:
        tokens, starts = made(rng, size, flavour)
        calls["n"] += 1
        before = sum(blocks[:flavour]) + 3 * flavour  # a validation split has one tar of three blocks
        if calls["n"] - before <= blocks[flavour]:
            flags = next(chosen[names[flavour]])
            for start, end, out in zip(starts, [*starts[1:], size], flags.tolist(), strict=True):
                if out:
                    tokens[start:end] = [
                        token if token == EOS else 1 + token * 3 % 95 for token in tokens[start:end]
                    ]
        return tokens, starts

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conftest, "document_tokens", altered)
        other = write_shards(Folder(tmp_path / "other"))
    before, after = (
        np.concatenate([b.tokens for s in open_shards(url).train.values() for b in all_blocks(s)])
        for url in (shards.url, other.url)
    )
    assert held and 0.1 < (before != after).mean() < 0.6
    weights = []
    for number, url in enumerate((shards.url, other.url)):
        settings = {
            "data.shards": url,
            "data.fold": fold.model_dump(),
            "output": str(tmp_path / f"run{number}"),
        }
        run = TrainConfig.model_validate(config(**settings))
        train(run)
        found = checkpoint.load_newest(Folder(run.output_url), {})
        assert found is not None
        weights.append(found.weights_xxh3)
    assert weights[0] == weights[1]


def test_mistakes_are_named(shards: Folder, ledger: tuple[str, dict[bytes, bytes]], tmp_path: Path) -> None:
    opened = open_shards(shards.url)
    with pytest.raises(UserError, match=r"data.fold.ledger: .*/nowhere: no \*.parquet there"):
        with_fold(opened, FoldConfig(of=2, index=0, ledger=str(tmp_path / "nowhere")))
    Path(ledger[0], "a.parquet").unlink()
    with pytest.raises(UserError, match="of the shards was not kept in it; it is the ledger of another run"):
        with_fold(opened, FoldConfig(of=2, index=0, ledger=ledger[0]))
    for data, message in (
        ({"fold": {"of": 2, "index": 2}}, "index 2: must be below 2"),
        ({"fold": {"of": 2, "index": 0}, "cross_documents": True}, "set cross_documents to false"),
    ):
        with pytest.raises(UserError, match=message):
            StreamingTokens(shards.url, **data)
    assert FoldConfig(of=2, index=0).ledger_of("s3://b/runs/x/shards/") == "s3://b/runs/x/ledger"
