"""A comparison of tokenizers for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from corpusmill.common.format import head, plain_size, quantity, share
from corpusmill.schemas.tokenizer import Compared, Fit, SmallModel, TokenizerComparison

NAME = 18  # columns of a source's name
KINDS = 10  # of a kind's


def show(found: TokenizerComparison) -> str:
    """What they were trained and measured on, a line for each tokenizer, then bytes per token and tokens per word by source and
    language."""
    sources = found.sources.values()
    lines = [
        f"trained on {plain_size(sum(one.train_bytes for one in sources))} of"
        f" {quantity(sum(one.train_docs for one in sources), 'document')}, measured on"
        f" {plain_size(sum(one.held_out_bytes for one in sources))} of {sum(one.held_out_docs for one in sources):,}",
        *(
            f"  {name}: one document only, which they were trained on too"
            for name, one in found.sources.items()
            if one.held_out == "train"
        ),
        "",
        f"{'':<10}{'vocabulary':>11}{'used':>8}{'bytes/':>8}{'tokens/':>9}{'whole':>8}{'unknown':>9}{'train':>8}{'encode':>9}",
        f"{'':<10}{'':>11}{'':>8}{'token':>8}{'word':>9}{'words':>8}{'bytes':>9}{'s':>8}{'MB/s':>9}",
        *map(_line, found.kinds),
    ]
    for title, value in (("bytes per token", _bytes), ("tokens per word", _fertility)):
        lines += _table(f"{title}, by source", found.kinds, lambda one: one.sources, value)
    if any(one.languages for one in found.kinds):
        lines += _table("bytes per token, by language", found.kinds, lambda one: one.languages, _bytes)
    lines += _models(found.kinds)
    lost = [one.kind for one in found.kinds if not one.reversible]
    if lost:
        lines += ["", f"text is lost by: {', '.join(lost)} (unknown tokens)"]
    return "\n".join(lines)


def _models(kinds: Sequence[Compared]) -> list[str]:
    """A line for each model that was trained."""
    rows = [(one.kind, one.model) for one in kinds if one.model is not None]
    if not rows:
        return []
    title = f"{'':<10}{'bits/byte':>10}{'95 % interval':>18}{'FLOPs':>10}{'steps':>8}{'parameters':>12}{'epochs':>9}"
    return [
        "", "small models at equal FLOPs", title,
        *(
            f"{kind:<10}{one.bits_per_byte:>10.4f}{_interval(one):>18}{one.flops:>10.2g}{one.steps:>8,}{one.parameters:>12,}"
            f"{one.times:>9.2f}"
            for kind, one in rows
        ),
    ]  # fmt: skip


def _interval(one: SmallModel) -> str:
    return "–" if one.low is None or one.high is None else f"{one.low:.4f}–{one.high:.4f}"


def _line(one: Compared) -> str:
    fit = one.whole
    return (
        f"{one.kind:<10}{one.vocab_size:>11,}{one.used:>8,}{fit.bytes_per_token:>8.3f}{fit.fertility:>9.3f}"
        f"{_share(fit.whole_words, 1):>8}{_share(fit.unknown_bytes, fit.bytes):>9}{one.train_seconds:>8.1f}"
        f"{one.encode_mb_per_second:>9.1f}"
    )


def _share(part: float, whole: float) -> str:
    return share(part, whole).replace("\u00a0", " ")


def _bytes(fit: Fit) -> float:
    return fit.bytes_per_token


def _fertility(fit: Fit) -> float:
    return fit.fertility


def _table(
    title: str,
    kinds: Sequence[Compared],
    rows: Callable[[Compared], dict[str, Fit]],
    value: Callable[[Fit], float],
) -> list[str]:
    """A line for each name that the kinds have figures of."""
    lines = ["", title, " " * NAME + "".join(f"{one.kind:>{KINDS}}" for one in kinds)]
    for name in rows(kinds[0]):
        lines.append(
            f"{head(name, NAME - 1):<{NAME}}"
            + "".join(f"{value(rows(one)[name]):>{KINDS}.3f}" for one in kinds)
        )
    return lines
