"""Changes of texts that a recipe may have as stages of its own: `{python: "corpusmill.pipeline.transforms:normalize"}`. Each is a
function on a table of documents, whose changes the engine records as edits."""

from __future__ import annotations

from corpusmill.pipeline.transforms.noise import noise
from corpusmill.pipeline.transforms.normalize import normalize

__all__ = ["noise", "normalize"]
