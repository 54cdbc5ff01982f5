"""A reward model: a decoder whose head is a single number, and the rewards of answers under a trained one (`corpusmill reward`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import orjson
import torch
from torch import Tensor

from corpusmill.common.errors import UserError
from corpusmill.common.task_progress import advance
from corpusmill.schemas.conversation_lines import Line, Wrong, read_line
from corpusmill.schemas.rewards import RewardSummary
from corpusmill.schemas.shards import Target
from corpusmill.train.data.conversations.encode import ConversationEncoder, Document
from corpusmill.train.data.conversations.model import read_with
from corpusmill.train.data.opening import run_vocabulary
from corpusmill.train.evaluate.splits import load_model, newest_checkpoint
from corpusmill.train.model.losses import IGNORED
from corpusmill.train.model.split import WHOLE, Split
from corpusmill.train.parallel.mesh import join
from corpusmill.train.precision.adapt import autocast

if TYPE_CHECKING:
    from corpusmill.common.storage import Folder
    from corpusmill.schemas.training import TrainConfig
    from corpusmill.train.model.decoder import Decoder

AT_ONCE = 256  # lines whose documents are in memory


def values(
    hidden: Tensor, weight: Tensor, labels: Tensor, z_loss: float = 0.0, chunk: int | None = None, split: Split = WHOLE,
    summed: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """In place of `token_losses`: hidden states [B, T, C] times a head [1, C], float32 [B, T], 0 where there is no label."""
    with torch.autocast(hidden.device.type, enabled=False):
        found = (hidden.float() @ weight.float().T).squeeze(-1)
    if split.size > 1:  # whose processes all have it whole, and sum their gradients
        part = found / split.size
        found = part + (found - part).detach()
    return found.where(labels != IGNORED, 0.0), torch.zeros(labels.shape, device=labels.device)


class Rewards(NamedTuple):
    """`lines`: those with rewards, as JSON with `reward`: a number, or of a pair those of `chosen` and `rejected`; `bad`: (number,
    reason) of the others."""

    lines: list[bytes]
    bad: list[tuple[int, str]]
    summary: RewardSummary


def rewards(config: TrainConfig, run: Folder, data: Sequence[bytes], rows: int = 16) -> Rewards:
    """The rewards of the answers in lines of JSON (blank ones are skipped) under a run's newest checkpoint. Raises `UserError` for a run of another objective."""
    if not config.model.reward_head:
        raise UserError(f"{run}: is no reward model: train one with objective.loss reward")
    assert config.data.conversations is not None
    found, world = newest_checkpoint(run), join(config)
    model = load_model(config, found, run_vocabulary(config, run).vocab_size, world.device, rewards=True)
    model.score = values
    reading = read_with(None, None, run.url)
    encoder = ConversationEncoder(
        reading.data,
        reading.encoder,
        reading.template,
        config.data.conversations,
        config.data.sequence_length,
    )
    done, bad, pairs = list[bytes](), list[tuple[int, str]](), list[tuple[float, float]]()
    for low in range(0, len(data), AT_ONCE):
        some, documents = list[tuple[int, Line]](), list[list[Document]]()
        for number, line in enumerate(data[low : low + AT_ONCE], low):
            if not line.strip():
                continue
            try:
                some.append((number, _answered(read_line(line))))
            except Wrong as wrong:
                bad.append((number, str(wrong)))
        kept = list[tuple[int, Line]]()
        for one, encoded in zip(some, encoder.encode([line for _, line in some]), strict=True):
            if isinstance(encoded, Wrong):
                bad.append((one[0], str(encoded)))
            else:
                kept.append(one)
                documents.append(encoded.documents)
        flat = [document for each in documents for document in each]
        scores = iter(_scores(model, config, flat, encoder.plain.eos_id, rows))
        for (number, _), each in zip(kept, documents, strict=True):
            own = [next(scores) for _ in each]
            if len(own) == 2:
                pairs.append((own[0], own[1]))
            reward: Any = own[0] if len(own) == 1 else {"chosen": own[0], "rejected": own[1]}
            done.append(orjson.dumps({**orjson.loads(data[number]), "reward": reward}) + b"\n")
        advance(len(data[low : low + AT_ONCE]))
    return Rewards(
        done,
        sorted(bad),
        RewardSummary(
            name=config.name, step=found.step, lines=len(done) + len(bad), scored=len(done), pairs=len(pairs),
            accuracy=sum(a > b for a, b in pairs) / len(pairs) if pairs else None,
            margin=sum(a - b for a, b in pairs) / len(pairs) if pairs else None,
        ),
    )  # fmt: skip


def _answered(line: Line) -> Line:
    if line.format == "text":
        raise Wrong("no answer: a text alone has no prompt")
    return line


@torch.inference_mode()
def _scores(
    model: Decoder, config: TrainConfig, documents: Sequence[Document], eos: int, rows: int
) -> list[float]:
    """Of each document, behind the text of its last answer."""
    device = model.embedding.weight.device
    order = sorted(range(len(documents)), key=lambda at: len(documents[at].tokens))
    found = np.zeros(len(documents))
    for low in range(0, len(order), rows):
        some = order[low : low + rows]
        length = max(len(documents[at].tokens) for at in some)
        tokens = torch.full((len(some), length), eos)
        places = []
        for row, at in enumerate(some):
            own = torch.from_numpy(documents[at].tokens)
            tokens[row, 1 : len(own)] = own[:-1]
            places.append(int(np.flatnonzero(documents[at].targets != Target.context)[-1]))
        with autocast(config, device):
            labels = torch.zeros_like(tokens)
            scores = model(tokens.to(device), labels.to(device))
        found[some] = scores[torch.arange(len(some)), places].double().cpu().numpy()
    return found.tolist()
