"""`corpusmill pseudo-label`: answers of a model to prompts without one, of which those that pass checks become training data.

By the model itself it is self-training (Lee 2013), by a larger one sequence-level distillation (Kim and Rush 2016); answers that several
samples agree on are self-consistent (Wang et al. 2022, Huang et al. 2022).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from corpusmill.common.task_progress import advance
from corpusmill.schemas.pseudo_labels import PseudoLabels, PseudoLabelSettings
from corpusmill.train.data.conversations.style import read_guide
from corpusmill.train.evaluate.metrics.style import satisfies
from corpusmill.train.generate.generate import pieces

if TYPE_CHECKING:
    from corpusmill.schemas.generation import Sampling
    from corpusmill.schemas.style import StyleGuide
    from corpusmill.train.generate.chat import Chat, Message
    from corpusmill.train.generate.generate import Opened

AT_ONCE = 256  # prompts whose answers are in memory


class Sample(NamedTuple):
    """An answer; `likely`: the mean log-probability of its tokens and of its end, in nats. `problem`: why it is not kept; empty: it is."""

    text: str
    likely: float
    problem: str


class Labelled(NamedTuple):
    """A prompt with the answer that is kept, or the likeliest one, whose `problem` says why it is not; `agreement`: the share of the
    prompt's answers that are the same text."""

    messages: Sequence[Message]
    answer: Sample
    agreement: float

    def line(self, model: str, step: int) -> dict[str, Any]:
        """A line of conversations, with where its answer comes from; of one that is not kept, with the reason."""
        about: dict[str, Any] = {
            "model": model,
            "step": step,
            "log_probability": round(self.answer.likely, 6),
        }
        about["agreement"] = round(self.agreement, 6)
        if self.answer.problem:
            about["removed"] = self.answer.problem
        return {
            "messages": [*self.messages, {"role": "assistant", "content": self.answer.text}],
            "pseudo_label": about,
        }


def pseudo_labels(
    opened: Opened, chat: Chat, conversations: Sequence[Sequence[Message]], sampling: Sampling, settings: PseudoLabelSettings,
    rows: int = 16,
) -> Iterator[Labelled]:  # fmt: skip
    """Each conversation, whose last message is to be answered, in their order; each advances the task of this thread by 1. Equal
    arguments give equal answers. Raises `UserError` for a message that the template refuses."""
    guide = read_guide(settings.style) if settings.style else None
    stop = [*sampling.stop, *chat.stop][:16]
    left, first = iter(conversations), 0
    while part := list(islice(left, AT_ONCE)):
        # Another part has other numbers, which are part of a text's seed.
        own = sampling.model_copy(update={"stop": stop, "seed": (sampling.seed + first) % 2**63})
        for messages, samples in zip(
            part, _answered(opened, chat, part, own, settings, guide, rows), strict=True
        ):
            advance(1)
            yield chosen(messages, samples, settings)
        first += len(part)


def _answered(
    opened: Opened, chat: Chat, part: Sequence[Sequence[Message]], sampling: Sampling, settings: PseudoLabelSettings,
    guide: StyleGuide | None, rows: int,
) -> list[list[Sample]]:  # fmt: skip
    """The answers to each conversation."""
    # Of one prompt: the same list, which is read once.
    prompts = [ids for messages in part for ids in [chat.prompt(messages)] for _ in range(settings.answers)]
    texts: list[list[str]] = [[] for _ in prompts]
    sums, counts = [0.0] * len(prompts), [0] * len(prompts)
    ends = [""] * len(prompts)
    for piece in pieces(opened, prompts, sampling, rows, slide=False, ends=chat.ends, likeliest=0):
        number = piece.request.number
        texts[number].append(piece.text)
        if piece.event.log_probability is not None:
            sums[number] += piece.event.log_probability
            counts[number] += 1
        if piece.end:
            ends[number] = piece.end
    found: list[list[Sample]] = [[] for _ in part]
    for number, (parts, end) in enumerate(zip(texts, ends, strict=True)):
        text = "".join(parts).strip()
        likely = sums[number] / max(counts[number], 1)
        problem = _problem(text, end, likely, settings, guide)
        found[number // settings.answers].append(Sample(text, likely, problem))
    return found


def _problem(
    text: str, end: str, likely: float, settings: PseudoLabelSettings, guide: StyleGuide | None
) -> str:
    """Why an answer by itself is not kept, in a word or two; empty if it is."""
    if end == "failed":
        return "failed"
    if end != "stop":
        return "unfinished"
    if not text:
        return "empty"
    broken = next((rule.id for rule in guide.rules if not satisfies(rule, text)), None) if guide else None
    if broken is not None:
        return f"breaks {broken}"
    if settings.least is not None and likely < settings.least:
        return "unlikely"
    return ""


def chosen(messages: Sequence[Message], samples: Sequence[Sample], settings: PseudoLabelSettings) -> Labelled:
    """The likeliest of the answers that are kept; with `agree`, of those with the most frequent text."""
    fine = [one for one in samples if not one.problem]
    counts = Counter(one.text for one in fine)
    most = max(counts.values(), default=0)
    fine = [one for one in fine if settings.agree is None or counts[one.text] == most]
    best = max(fine or samples, key=lambda one: one.likely)
    agreement = sum(one.text == best.text for one in samples) / len(samples)
    if fine and settings.agree is not None and agreement < settings.agree:
        best = best._replace(problem="disagreement")
    return Labelled(messages, best, agreement)


def summary(
    found: Sequence[Labelled], opened: Opened, name: str, settings: PseudoLabelSettings
) -> PseudoLabels:
    """What became of the prompts."""
    kept = [one.answer.likely for one in found if not one.answer.problem]
    removed = Counter(one.answer.problem for one in found if one.answer.problem)
    return PseudoLabels(
        model=name, step=opened.step, settings=settings, prompts=len(found), kept=len(kept), removed=dict(sorted(removed.items())),
        log_probability=sum(kept) / len(kept) if kept else None,
    )  # fmt: skip
