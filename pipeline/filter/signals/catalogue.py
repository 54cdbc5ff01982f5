"""Every signal measured on the text alone: the families' own and those of plugins."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy.typing as npt

from corpusmill.pipeline.filter.signals import (
    conversation,
    datatrove,
    document,
    gopher,
    gopher_tools,
    web_corpora,
)
from corpusmill.pipeline.filter.signals.registry import BUILT_IN, MEASURES, Measure, Registry
from corpusmill.pipeline.filter.text.view import TextView
from corpusmill.schemas.tables import SignalSpec

# Imported: their decorators have registered them.
FAMILIES = (document, gopher, web_corpora, web_corpora)
VARIANTS = (conversation, datatrove, gopher_tools)  # measured on demand alone

NO_PLUGINS = Registry({}, set())


def every_spec(plugins: Registry = NO_PLUGINS) -> list[SignalSpec]:
    """The specs of all signals that need no model, those measured on demand too."""
    return [spec for spec, _ in _chosen({*MEASURES, *plugins.measures}, plugins)]


def text_specs(asked: Collection[str] = (), plugins: Registry = NO_PLUGINS) -> list[SignalSpec]:
    """The specs of the signals that need no model, in the order of their columns; of those measured on demand
    the ones `asked` for."""
    return [spec for spec, _ in _chosen(asked, plugins)]


def measure(
    view: TextView, asked: Collection[str] = (), plugins: Registry = NO_PLUGINS
) -> dict[str, npt.NDArray[Any]]:
    """The values of `text_specs(asked, plugins)` of a view, by name."""
    return {spec.name: own(view) for spec, own in _chosen(asked, plugins)}


def _chosen(asked: Collection[str], plugins: Registry) -> list[tuple[SignalSpec, Measure]]:
    """Families by name, whatever was imported first; inside a family, and for plugins, as they were defined."""
    own = sorted(BUILT_IN.measures.items(), key=lambda entry: entry[0].split(".")[0])
    late = BUILT_IN.on_demand | plugins.on_demand
    return [entry for name, entry in (*own, *plugins.measures.items()) if name not in late or name in asked]
