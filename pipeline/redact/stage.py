"""`redact`: personal data and secrets replaced; every edit in the ledger, the datum itself nowhere."""

from __future__ import annotations

from functools import partial
from typing import Any

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.found import clause, documents_removed, kinds, most
from corpusmill.pipeline.engine.stage import Context, LocalStage, Transform
from corpusmill.schemas.manifest import PublishedFile, StageManifest
from corpusmill.schemas.recipe import Recipe
from corpusmill.schemas.stages import RedactParams


class Redact(LocalStage):
    """Replaces personal data and secrets, or removes the documents that hold them (`corpusmill.schemas.stages.PiiKind`).

    First what is recognised in any document is collected (`prepare`), then every document is edited.
    """

    name = "redact"
    version = "6"

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe)
        params: RedactParams = self.params
        self.looks_across = bool(params.known_kinds)
        if len(set(params.kinds)) != len(params.kinds):
            raise UserError("redact.kinds: each kind may be named once")
        self.key = b""
        if any(params.replacement_of(kind) == "pseudonym" for kind in params.kinds):
            from corpusmill.pipeline.redact.pseudonyms import read_key

            self.key = read_key(params.key_env)
        if params.model is not None:
            from corpusmill.pipeline.redact.models import load

            load(params.model)  # fail on a wrong name now, not in a worker
        if "phone" in params.kinds:
            from corpusmill.pipeline.redact.phone_plans import known_region

            for region in params.phone_regions:
                if not known_region(region):
                    raise UserError(
                        f"redact.phone_regions: '{region}' has no numbering plan; regions are ISO 3166"
                        " codes in capitals, such as US, GB, DE"
                    )

    def key_params(self) -> dict[str, Any]:
        """The parameters, and which key made the pseudonyms and which model found names: others give another
        output."""
        params = super().key_params()
        params.pop("seed")  # nothing here is drawn
        if self.key:
            from corpusmill.pipeline.redact.pseudonyms import fingerprint

            params["key_fingerprint"] = fingerprint(self.key)
        if self.params.model is not None:
            from corpusmill.pipeline.redact.models import identity

            params["model_identity"] = identity(self.params.model)
        return params

    def prepare(self, context: Context) -> tuple[list[PublishedFile], dict[str, int]]:
        from corpusmill.pipeline.redact.prepare import collect

        return collect(context, self.params, self.key, self.version)

    def found(self, manifest: StageManifest, folder: Folder) -> str:
        counters = manifest.counters
        replaced = {kind: counters[kind] for kind in self.params.kinds if counters.get(kind)}
        return "; ".join(
            [
                most(replaced) or "nothing replaced",
                clause(documents_removed(manifest.counts), most(kinds(counters, "removed/"))),
            ]
        )

    def transform(self, folder: Folder, partition: str) -> Transform:
        from corpusmill.pipeline.redact.apply import redact

        known = None
        if self.looks_across:
            from corpusmill.pipeline.redact.prepare import load

            known = load(folder)
            if known is None:
                raise WorkError(f"{folder}: the set of what was recognised is missing; run redact again")
        return partial(redact, params=self.params, key=self.key, known=known)


STAGE = Redact
