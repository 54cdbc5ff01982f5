"""`compression.json` beside a compressed model: what was done to it, and what that changed."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from corpusmill.schemas.evaluation import Estimate
from corpusmill.schemas.manifest import Strict

COMPRESSION = "compression.json"
Method = Literal["int8", "int4", "gptq", "awq", "magnitude", "wanda", "depth", "width"]
OPTIONS: dict[str, tuple[str, ...]] = {
    "int8": (), "int4": ("group",), "gptq": ("group",), "awq": ("group",), "magnitude": ("share", "pattern"),
    "wanda": ("share", "pattern"), "depth": ("layers",), "width": ("ffn_dim", "heads", "dim"),
}  # fmt: skip


class CompressionSettings(Strict):
    """What is done to a model; options that the method does not have are refused."""

    method: Method
    group: Literal[32, 64, 128] | None = Field(
        default=None, description="int4, gptq, awq: weights of a row that share a scale; default 32"
    )
    share: float | None = Field(
        default=None, gt=0, lt=1, description="magnitude, wanda: of the weights of each row, to prune; default 0.5"
    )  # fmt: skip
    pattern: str | None = Field(
        default=None,
        pattern=r"^[1-9]\d?:[1-9]\d?$",
        description="magnitude, wanda, instead of a share: N:M keeps N of every M weights, such as 2:4",
    )
    layers: int | None = Field(default=None, ge=1, description="depth: how many to remove")
    ffn_dim: int | None = Field(
        default=None, ge=1, description="width: neurons of each feed-forward that are left"
    )
    heads: int | None = Field(default=None, ge=1, description="width: heads of each attention that are left")
    dim: int | None = Field(
        default=None, ge=8, description="width: channels between the layers that are left"
    )

    @model_validator(mode="before")
    @classmethod
    def fill(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        options = OPTIONS.get(str(given.get("method")), ())
        if "group" in options and given.get("group") is None:
            return {**given, "group": 32}
        if "share" in options and given.get("share") is None and given.get("pattern") is None:
            return {**given, "share": 0.5}
        return given

    @model_validator(mode="after")
    def options(self) -> CompressionSettings:
        mine = OPTIONS[self.method]
        for name in ("group", "share", "pattern", "layers", "ffn_dim", "heads", "dim"):
            if getattr(self, name) is not None and name not in mine:
                takes = ", ".join(mine) or "no option"
                raise ValueError(f"{name}: method {self.method} has none (it has {takes}): leave it out")
        if self.share is not None and self.pattern is not None:
            raise ValueError("share, pattern: give one of them")
        if self.method == "depth" and self.layers is None:
            raise ValueError("layers: method depth needs how many layers to remove")
        if self.method == "width" and not (self.ffn_dim or self.heads or self.dim):
            raise ValueError("ffn_dim, heads, dim: method width needs one of these sizes, of what is left")
        if self.pattern is not None and self.kept[0] >= self.kept[1]:
            raise ValueError(
                f"pattern: {self.pattern} keeps all weights: the first number must be below the second"
            )
        return self

    @property
    def kept(self) -> tuple[int, int]:
        """(N, M) of the pattern."""
        first, _, second = (self.pattern or "").partition(":")
        return int(first), int(second)

    @property
    def bits(self) -> int | None:
        """Of a quantised weight."""
        return {"int8": 8, "int4": 4, "gptq": 4, "awq": 4}.get(self.method)

    @property
    def calibrated(self) -> bool:
        """Whether the method looks at activations."""
        return self.method in ("gptq", "awq", "wanda", "depth", "width")


class SourceChange(Strict):
    """Of one source's validation split, before and after."""

    before: Estimate | None = Field(description="bits per byte of all documents; null of text without a byte")
    after: Estimate | None
    difference: Estimate | None = Field(
        description="after less before, paired by document, which are the units of its interval"
    )
    divergence: Estimate = Field(
        description="KL(before || after) in nats a token, over the sample that training is validated on"
    )
    divergence_p99: float = Field(description="its 99 % quantile over tokens")
    agreement: Estimate = Field(description="share of those tokens whose likeliest one is the same")


class Compression(Strict):
    """The whole file."""

    kind: Literal["corpusmill-compression-v1"] = "corpusmill-compression-v1"
    name: str = Field(description="of the run")
    step: int
    weights_hash: str = Field(description="of the run's checkpoint")
    settings: CompressionSettings
    calibration_rows: int = Field(description="rows of the train splits whose activations were measured")
    calibration_tokens: int
    removed: list[int] = Field(default=[], description="depth: layers that were removed, counted from 0")
    importance: list[float] = Field(
        default=[], description="depth: of each layer, mean of 1 - cos(input, output) over calibration tokens"
    )
    model: dict[str, Any] = Field(description="keys of the config's model section that are others now")
    weights: int = Field(description="in the matrices that the method works on, after it")
    zeros: float = Field(description="share of them that is 0")
    bytes_before: int = Field(description="of all weights, in bfloat16")
    bytes_after: int = Field(
        description="of all weights as the method would store them; the files beside this one have float32"
    )
    speed_before: float = Field(
        description="tokens/s of a forward pass in float32 on the machine that this was made on, median of a few"
    )
    speed_after: float = Field(description="of the model beside this file, measured in turn with the other")
    sources: dict[str, SourceChange]
    difference: Estimate | None = Field(description="mean of the sources' differences")
