"""Shares of the tokens: from weights, repeats or a temperature to slots of a batch; refused with the number to change."""

from __future__ import annotations

from corpusmill.common.errors import UserError, nearest
from corpusmill.schemas.data import DataConfig, Mixture
from corpusmill.train.data.lanes import largest_remainder


def shares(mixture: Mixture, tokens: dict[str, int], key: str) -> dict[str, float]:
    """Normalised share of each source that the mixture reads, in the order of `tokens` (source -> tokens there).

    `key` names the mixture in messages, as `data` or `data.stages[1]`. Raises `UserError` for a source that is not there.
    """
    for way in ("weights", "repeats"):
        for name in getattr(mixture, way) or {}:
            if name not in tokens:
                raise UserError(
                    f"{key}.{way}.{name}: the shard set has no such source with tokens to train on"
                    f"{nearest(name, tokens)} (it has: {', '.join(tokens)})"
                )
    if mixture.weights:
        given = {name: mixture.weights.get(name, 0.0) for name in tokens}
    elif mixture.repeats:
        given = {name: count * mixture.repeats.get(name, 0.0) for name, count in tokens.items()}
    else:
        power = 1 / (mixture.temperature or 1.0)
        given = {name: float(count) ** power for name, count in tokens.items()}
    total = sum(given.values())
    return {name: weight / total for name, weight in given.items() if weight > 0}


def slots(wanted: dict[str, float], lanes: int, config: DataConfig, key: str) -> dict[str, int]:
    """Slots of each source among `lanes`, by largest remainder. Raises `UserError` for a share that gets none."""
    counts = largest_remainder(list(wanted.values()), lanes)
    for (name, share), count in zip(wanted.items(), counts, strict=True):
        if not count:
            enough = _enough(list(wanted.values()), lanes)
            raise UserError(
                f"{key}: '{name}' has a share of {share:.3g}, which is no sequence in {lanes}: set data.lanes to {enough}"
                f" (the mixture is then exact over {enough // lanes} batches), raise data.global_batch to as much, give"
                f" the source a larger share, or leave it out of {key}.weights"
            )
    return dict(zip(wanted, counts, strict=True))


def _enough(wanted: list[float], lanes: int) -> int:
    """The smallest multiple of `lanes`, by doubling, in which every share has a slot."""
    size = lanes
    while size < 2**50 and not all(largest_remainder(wanted, size)):
        size *= 2
    return size
