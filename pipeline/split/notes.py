"""What the choice came to, in words: sources that got less than was wanted, sides that were not kept apart by source,
and the component that hosts make."""

from __future__ import annotations

from collections import Counter

from corpusmill.common.format import percent
from corpusmill.pipeline.split.choose import GIANT, LARGE, LAST, TRAIN_ONLY, Choice
from corpusmill.schemas.split import SplitParams

MET = 0.95  # of what was wanted, from which on nothing is said
_WHY = {
    LARGE: "would take more than half of a source",
    LAST: "would leave a source no train",
    TRAIN_ONLY: "hold documents of a source that is train alone",
}


def notes(choice: Choice, params: SplitParams) -> list[str]:
    """A line for each thing that the user should know."""
    lines = []
    largest, sources = choice.made.largest, choice.sources()
    total = sum(side["bytes"] for splits in sources.values() for side in splits.values())
    if largest is not None and total and largest["bytes"] >= 0.1 * total:
        named = ", ".join(largest["largest_hosts"])
        rest = largest["hosts"] - len(largest["largest_hosts"])
        lines.append(
            f"{largest['docs']:,} documents, {percent(largest['bytes'], total)} of the text, hang together by host and"
            f" duplicate cluster and are never parted: {named}{f' and {rest:,} more hosts' if rest else ''}"
        )
    for name, splits in sources.items():
        line = _source(name, splits, choice, params)
        if line:
            lines.append(f"{name}: {line}")
    return lines


def _source(name: str, splits: dict[str, dict[str, int]], choice: Choice, params: SplitParams) -> str | None:
    train, validation = splits["train"], splits["validation"]
    why = _reasons(choice.passed_over.get(name, Counter()))
    target = params.target(name)
    if target.only == "validation":
        if not train["docs"]:
            return None
        return f"{_documents(train['docs'], 'stays', 'stay')} in train although it is validation alone{why}"
    if target.only == "train":
        if not validation["docs"]:
            return None
        return (
            f"{_documents(validation['docs'], 'is', 'are')} validation although it is train alone:"
            " it hangs together with a source that is validation alone"
        )
    wanted = choice.wanted[name]
    total = train["bytes"] + validation["bytes"]
    if validation["bytes"] > wanted + GIANT * total:
        return (
            f"validation has {percent(validation['bytes'], total)} of the text, wanted were {percent(wanted, total)}:"
            " it comes in few large components, or hangs together with other sources' validation"
        )
    if not wanted or (validation["bytes"] >= MET * wanted and validation["groups"] >= target.min_documents):
        return None
    if not validation["docs"]:
        one = train["groups"] == 1 or _components(choice, name) == 1
        return "no validation" + (
            ": all of it is one component, which cannot be parted" if one else why or ""
        )
    return (
        f"validation has {validation['bytes']:,} bytes in {validation['groups']:,} groups; wanted were {wanted:,}"
        f" in {target.min_documents:,} or more{why}"
    )


def _components(choice: Choice, name: str) -> int:
    number = choice.made.names.index(name)
    return int((choice.made.source == number).sum() + choice.made.rest_docs[number])


def _reasons(passed_over: Counter[str]) -> str:
    said = [f"{count:,} {_WHY[why]}" for why, count in sorted(passed_over.items())]
    return f"; of the components looked at {', '.join(said)}" if said else ""


def _documents(count: int, one: str, many: str) -> str:
    return f"1 document {one}" if count == 1 else f"{count:,} documents {many}"
