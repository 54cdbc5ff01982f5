"""What a run publishes of itself: `checkpoints/step-<n>/`, its table of tensors and, written last, its manifest."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from corpusmill.schemas.manifest import PublishedFile, Strict

Shape = tuple[int, ...]


class Box(Strict):
    """A part of a tensor, in row-major order, and where its bytes lie."""

    offsets: Shape = Field(description="of its first element, in the whole tensor")
    sizes: Shape
    file: str
    key: str = Field(description="its name in that safetensors file")
    at: int = Field(ge=0, description="its first byte in the file")


class StoredTensor(Strict):
    """A whole tensor: its boxes cover it, each element once."""

    shape: Shape
    dtype: str = Field(description="as safetensors calls it: F32, BF16, U8, ...")
    boxes: list[Box]


class TensorTable(Strict):
    """`tensors.json`: every tensor by its name; names are the same in every layout."""

    tensors: dict[str, StoredTensor]


class CheckpointManifest(Strict):
    """`manifest.json`, written last: its presence, with the right hashes, means done."""

    kind: Literal["corpusmill-checkpoint-v2"] = "corpusmill-checkpoint-v2"
    step: int = Field(ge=0)
    files: list[PublishedFile]
    tensors: dict[str, int] = Field(
        description="model, optimizer -> tensors of it in tensors.json; a reader that finds fewer refuses"
    )
