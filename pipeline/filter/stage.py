"""The stage: partition in, kept documents, decisions and signals out."""

from __future__ import annotations

import unicodedata
from functools import cached_property
from typing import TYPE_CHECKING, Any

from corpusmill.common.errors import UserError, nearest
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.found import clause, documents_removed, kinds, most
from corpusmill.pipeline.engine.planning.constants import Constants
from corpusmill.pipeline.engine.planning.forecast import Flow, Forecast, local
from corpusmill.pipeline.engine.stage import LocalStage
from corpusmill.pipeline.filter import plugins
from corpusmill.pipeline.filter.classifiers import fasttext_model
from corpusmill.pipeline.filter.lists.list_files import list_hashes
from corpusmill.pipeline.filter.rules.sets import MODEL_SETS, line_rules, resolve
from corpusmill.schemas.filter import FilterParams
from corpusmill.schemas.manifest import StageManifest
from corpusmill.schemas.recipe import Recipe

if TYPE_CHECKING:
    from corpusmill.pipeline.filter.apply import Filtering


class Filter(LocalStage):
    """Signals measured once on every document; rules, language, toxicity and quality judged on them.

    Rules are judged in the order of `filter.rules`, then language (`language.keep`, `language.threshold`),
    toxicity, quality and quality_signals (`remove_above`, `remove_below`); the first that fails decides, all that fail are
    listed. Every text signal is measured whichever rules are on; a signal that needs a model is null when its
    section of the recipe is null. `language` is set. With `filter.cut_lines`, documents that stay lose the lines
    that the sets' rules on lines cut, an edit in the ledger each; signals are of the text as it came.
    """

    name = "filter"
    version = "7"

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe)
        params: FilterParams = self.params
        self.rules = resolve(params)
        if params.plugins:
            plugins.load(params.plugins)  # an error in one is raised before any work
        for source in params.skip_sources:
            if source not in recipe.sources:
                hint = nearest(source, recipe.sources)
                known = ", ".join(recipe.sources)
                raise UserError(f"filter.skip_sources: '{source}' is not a source{hint} (sources: {known})")

    def forecast(self, flow: Flow, known: Constants) -> Forecast:
        return local(self.name, flow, known, files=3)  # signals too

    def models(self) -> dict[str, fasttext_model.ModelFile]:
        """The models that this recipe asks for, by rule set; remote ones are fetched."""
        found = {}
        for name in MODEL_SETS:
            section = getattr(self.params, name)
            if section is not None:
                if section.model is None:
                    found[name] = fasttext_model.shipped(fasttext_model.SHIPPED[name])
                elif name == "language" and section.model in fasttext_model.LANGUAGE_MODELS:
                    found[name] = fasttext_model.shipped(f"{section.model}.ftz")
                else:
                    found[name] = fasttext_model.find(section.model)
        return found

    def check(self) -> list[str]:
        """Loads the models and looks whether they fit the recipe; warns of rules that will judge languages that they are not made for."""
        self._filtering  # noqa: B018 (made, it was looked at)
        language = self.params.language
        if language is not None and language.keep is not None:
            return []  # other languages go, and rules are judged on their own
        sets: dict[str, set[str]] = {}
        for rule in self.rules:
            if rule.languages:
                sets.setdefault(rule.name.partition(".")[0], set()).update(rule.languages)
        key = "filter.language" if language is None else "filter.language.keep"
        return [
            f"filter: the rules of {name} are made for {', '.join(sorted(languages))}, and will judge text of every language:"
            f" {key} is not set"
            for name, languages in sets.items()
        ]

    def key_params(self) -> dict[str, Any]:
        """The recipe's, the rules as resolved, the bytes of models and plugins, and the Unicode version of this Python."""
        return {
            **super().key_params(),
            "rules": [rule.as_json() for rule in self.rules],
            "lines": [rule.as_json() for rules in line_rules(self.params).values() for rule in rules],
            "lists": list_hashes(self.params),
            "models": {name: model.key for name, model in self.models().items()},
            "plugins": plugins.checksums(self.params.plugins),
            "unicode": unicodedata.unidata_version,
        }

    def found(self, manifest: StageManifest, folder: Folder) -> str:
        rules = most(kinds(manifest.counters, "rule/", "/first"))
        return clause(documents_removed(manifest.counts), rules)

    def transform(self, folder: Folder, partition: str) -> Filtering:
        """Loads the models, once for all partitions."""
        return self._filtering

    @cached_property
    def _filtering(self) -> Filtering:
        from corpusmill.pipeline.filter.apply import Filtering

        return Filtering(self.params, self.rules, self.models())


STAGE = Filter
