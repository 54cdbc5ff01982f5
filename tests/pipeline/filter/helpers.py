"""Documents, recipes and the stage in one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from corpusmill.common.ids import doc_id, text_hash
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.stage import Outcome, check_conservation
from corpusmill.pipeline.filter.apply import Filtering, signals_of_text
from corpusmill.pipeline.filter.stage import Filter
from corpusmill.schemas.recipe import Recipe
from corpusmill.schemas.tables import DOCUMENTS

# About 80 words of ordinary prose that no rule objects to.
PROSE = (
    "The river rises in the hills to the north of the town and flows through a wide valley. In spring it "
    "floods the "
    "meadows that lie on both of its banks.\nFarmers have kept cattle there for hundreds of years, and "
    "they know the "
    "signs of high water well. A stone bridge crosses the river near the old mill.\nIt was built by "
    "monks, who also "
    "planted the orchards. Travellers stop at the inn beside it to have a meal with friends before they "
    "go on."
)


def documents(texts: Sequence[str], source: str = "web") -> pa.Table:
    """A document table of one source."""
    rows = [
        {
            "doc_id": doc_id(source, f"a#{i}"),
            "source": source,
            "locator": f"a#{i}",
            "text": text,
            "text_hash": text_hash(text),
        }
        for i, text in enumerate(texts)
    ]
    return pa.Table.from_pylist(rows, schema=DOCUMENTS)


def stage(sources: Sequence[str] = ("web",), **params: Any) -> Filter:
    """The stage of a recipe with these filter parameters."""
    described = {name: {"paths": ["x"]} for name in sources}
    return Filter(Recipe.model_validate({"name": "test", "sources": described, "filter": params}))


def without_models(**params: Any) -> dict[str, Any]:
    """Parameters that leave the models out."""
    return {"language": None, "toxicity": None, "quality": None, "quality_signals": None, **params}


def apply(docs: pa.Table, **params: Any) -> Outcome:
    """What the stage makes of `docs`, with conservation checked."""
    sources = sorted(set(docs["source"].to_pylist())) or ["web"]
    transform = stage(sources, **params).transform(Folder("unused"), "00000")
    assert isinstance(transform, Filtering)
    outcome = transform(docs)
    check_conservation("filter", len(docs), outcome)
    return outcome


def measured(texts: Sequence[str]) -> dict[str, list[float]]:
    """Signal name -> its value for each text."""
    return {
        name: column.to_pylist()
        for name, column in signals_of_text(pa.array(texts, pa.large_string())).items()
    }


def one(text: str) -> dict[str, float]:
    """Signal name -> its value for one text."""
    return {name: values[0] for name, values in measured([text]).items()}
