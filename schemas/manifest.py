"""Contract 4: manifests. What a stage published, from what, and the counts that must add up; the record of a run and of its input
files; and what a training run publishes in `checkpoints/step-<n>/`: its table of tensors and, written last, its manifest."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from corpusmill.common.errors import WorkError

MANIFEST = "manifest.json"
EXPIRED = "expired.json"
TEXTS = "documents/"  # of a stage: what expires
# Of any size that a config has: 16 TiB, far beyond what is of use, and within every computation's range.
MOST_MIB = 2**24


def manifest_name(stage: str) -> str:
    """The file name of a stage's manifest, in its folder.

    The ledger's tables lie in its folder itself, which Parquet readers take whole: they pass over `_` names.
    """
    return f"_{MANIFEST}" if stage == "ledger" else MANIFEST


class Strict(BaseModel):
    """Frozen, and closed to unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    def to_json(self) -> bytes:
        """The bytes of a published file that holds it."""
        return (self.model_dump_json(indent=1) + "\n").encode()

    @classmethod
    def from_json(cls, data: bytes, where: object, error: type[Exception] = WorkError) -> Self:
        """What a file holds; raises `error`, naming the file `where` and the first wrong key, if it is something else."""
        try:
            return cls.model_validate_json(data)
        except ValidationError as wrong:
            first = wrong.errors()[0]
            key = ".".join(str(part) for part in first["loc"])
            raise error(f"{where}: not a {cls.__name__}: {key}: {first['msg']}") from None


class PublishedFile(Strict):
    """One published file: its path under the stage's folder, and what its bytes must be."""

    path: str
    rows: int | None = Field(default=None, ge=0)
    bytes: int = Field(ge=0)
    xxh3: str = Field(description="xxh3_128 of the bytes, hex")
    sha256: str = Field(
        default="",
        exclude_if=lambda value: not value,
        description="of the bytes, hex; left out by what is no part of a run (checkpoints, caches)",
    )


class Marker(Strict):
    """A finished task, for `common.checkpoints`. `key`: hash of all that the files depend on."""

    key: str
    files: list[PublishedFile]


class Counts(Strict):
    """The law that `verify` checks everywhere: in = kept + removed + quarantined."""

    docs_in: int = Field(default=0, ge=0)
    kept: int = Field(default=0, ge=0)
    removed: int = Field(default=0, ge=0)
    quarantined: int = Field(default=0, ge=0)
    bytes_in: int = Field(default=0, ge=0, description="UTF-8 bytes of text (ingest: bytes of input read)")
    bytes_kept: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def conserved(self) -> Counts:
        if self.docs_in != self.kept + self.removed + self.quarantined:
            raise ValueError(
                f"conservation broken: in {self.docs_in} != kept {self.kept} + removed {self.removed}"
                f" + quarantined {self.quarantined}"
            )
        return self

    def __add__(self, other: Counts) -> Counts:
        names = type(self).model_fields
        return Counts(**{name: getattr(self, name) + getattr(other, name) for name in names})


class PartitionManifest(Strict):
    """Written after a partition's files, last: its presence, with the right key, is what `done` means."""

    partition: str = Field(description="name of the partition, the same in every stage of a run")
    key: str = Field(description="hash of (stage key, partition name, input partition's bytes)")
    counts: Counts
    per_source: dict[str, Counts] = Field(default_factory=dict)
    files: list[PublishedFile]
    counters: dict[str, int] = Field(default_factory=dict, description="whatever the stage counts")
    seconds: float = Field(default=0.0, ge=0, description="CPU seconds; not part of any hash")


class Figures(Strict):
    """Time, memory, bytes and requests of a stage, or of a step of it, over all tasks."""

    tasks: int = Field(default=0, ge=0)
    seconds: float = Field(default=0.0, ge=0, description="wall time")
    cpu_seconds: float = Field(default=0.0, ge=0, description="of all tasks, and of the driver")
    worker_bytes: float = Field(default=0.0, ge=0, description="peak memory of the largest worker process")
    driver_bytes: float = Field(default=0.0, ge=0, description="peak memory of the driver process")
    read_bytes: float = Field(default=0.0, ge=0)
    written_bytes: float = Field(default=0.0, ge=0, description="what is deleted again among them")
    gets: float = Field(default=0.0, ge=0, description="requests that read or look up an object")
    puts: float = Field(
        default=0.0, ge=0, description="requests that write an object, or a part of a large one"
    )
    lists: float = Field(default=0.0, ge=0, description="pages of listings")

    @property
    def requests(self) -> float:
        """All of them."""
        return self.gets + self.puts + self.lists


class StageResources(Strict):
    """A stage's plan beside what came of it. Partitions that an earlier, interrupted run had finished are in the plan,
    not in the actual figures."""

    planned: Figures | None = Field(default=None, description="null: the run was not planned")
    actual: Figures


class StageManifest(Strict):
    """A finished stage: what it ran with, what it published, and the totals."""

    stage: str
    version: str = Field(description="changes when the same input and parameters may give other bytes")
    key: str = Field(description="hash of (stage, version, parameters, keys of the inputs)")
    params: dict[str, Any]
    inputs: dict[str, str] = Field(description="input stage or file -> its key or xxh3")
    partitions: list[str]
    counts: Counts
    per_source: dict[str, Counts] = Field(default_factory=dict)
    counters: dict[str, int] = Field(default_factory=dict)
    files: list[PublishedFile] = Field(default_factory=list, description="files that belong to no partition")
    checksums: dict[str, str] = Field(
        default_factory=dict,
        description="parts/<partition>.json of each partition, units/<unit>.json of each unit of input -> sha256 of its bytes",
    )
    seconds: float = Field(
        default=0.0, ge=0, description="CPU seconds of the transforms, or of the driver; not part of any hash"
    )
    resources: StageResources | None = Field(default=None, description="not part of any hash")


def hash_json(value: Any) -> str:
    """xxh3_128 (hex) of a JSON value in canonical form: sorted keys, no spaces."""
    import xxhash  # here, since configs are read where nothing but torch and numpy is installed (bench/)

    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return xxhash.xxh3_128_hexdigest(text.encode("ascii"))


def stage_key(stage: str, version: str, params: dict[str, Any], inputs: dict[str, str]) -> str:
    """The key of a stage: changes exactly when its output may."""
    return hash_json({"stage": stage, "version": version, "params": params, "inputs": inputs})


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


def without_empty(content: dict[str, Any], *names: str) -> dict[str, Any]:
    """A document without those of these fields that are empty."""
    return {name: value for name, value in content.items() if value or name not in names}


class SourceLost(Strict):
    """An alarm: a source of which a stage kept less than the recipe wants."""

    source: str
    stage: str
    records: int = Field(description="that came into the stage")
    kept: int
    min_kept: float = Field(description="share that the recipe wants kept")
    rule: str | None = Field(description="that took most of them")
    by_rule: int = Field(description="records that it took")
    message: str


class RecordedStage(Strict):
    """A finished stage of a run."""

    key: str = Field(description="of its manifest")
    folder: str = Field(description="below the run's folder")


class RunRecord(Strict):
    """`manifest.json` of a run, `run.json` of a stage's command: written after the last stage.

    It holds the manifests of the stages to their checksums, and these hold all else. A signature signs the record's bytes.
    """

    kind: Literal["corpusmill-run-v2"] = "corpusmill-run-v2"
    corpusmill: str = Field(description="version that ran it; part of no key")
    recipe: dict[str, Any] = Field(description="a Recipe, without `cluster` and `output`")
    stages: dict[str, RecordedStage] = Field(description="in the order of the run")
    revisions: dict[str, str] = Field(
        default={},
        description="data set of the Hugging Face Hub with its revision -> the commit that was read; left out if there is none",
    )
    ended_early: bool = Field(
        default=False, description="a source lost more than the recipe allows; left out if not"
    )
    checksums: dict[str, str] = Field(
        description="below the run's folder: manifest of each stage, inputs.json, report.html, resources.html and profile.json -> sha256 of its bytes"
    )
    signed_by: str = Field(
        default="",
        description="ed25519 public key, base64, of the signature beside it; left out if there is none",
    )
    seal: str = Field(default="", description="sha256 of this document without it")

    def to_json(self) -> bytes:
        """The bytes of the file, sealed."""
        content = without_empty(self.model_dump(exclude={"seal"}), "revisions", "ended_early", "signed_by")
        return _sealed(content)

    @staticmethod
    def intact(data: bytes) -> bool:
        """Whether a record's bytes are, each of them, as they were written."""
        try:
            content = json.loads(data)
            content.pop("seal")
            return _sealed(content) == data
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return False


def _sealed(content: dict[str, Any]) -> bytes:
    seal = hashlib.sha256(_indented(content)).hexdigest()
    return _indented({**content, "seal": seal})


def _indented(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, indent=1) + "\n").encode()


class RecordSignature(Strict):
    """`manifest.sig` beside a run's `manifest.json`, `run.sig` beside a `run.json`: the signature of that file's bytes."""

    kind: Literal["corpusmill-signature-v1"] = "corpusmill-signature-v1"
    algorithm: Literal["ed25519"] = "ed25519"
    public_key: str = Field(description="32 bytes, base64")
    signature: str = Field(description="64 bytes, base64")


class Owner(Strict):
    """`owner.json`: who writes into a folder; deleted when it is done, and renewed every few seconds until then."""

    kind: Literal["corpusmill-owner-v1"] = "corpusmill-owner-v1"
    token: str = Field(description="of this claim alone")
    command: str
    host: str
    machine: str = Field(description="boot and process namespace, in which the process id is unique")
    process: int
    process_start: float = Field(description="Unix time: ids are used again")
    since: float = Field(description="Unix time of the claim, by the owner's clock")
    renewed: float = Field(description="Unix time of the last renewal, by the owner's clock")


class Expired(Strict):
    """`expired.json` of a stage: its documents were deleted on purpose, and are not missing."""

    kind: Literal["corpusmill-expired-v1"] = "corpusmill-expired-v1"
    key: str = Field(description="of the stage's manifest, which names them")
    why: str = Field(description="what asked for it, such as `retain: none`")


class RunInputs(Strict):
    """`inputs.json`: the raw files, so that those whose size and change tag are known are not read again."""

    files: dict[str, tuple[int, str, str]] = Field(
        description="<source>/<path> -> bytes, change tag, xxh3_128 of the bytes (of a file of the Hub: the hash that the Hub has)"
    )
    revisions: dict[str, str] = Field(
        default={},
        description="data set of the Hugging Face Hub with its revision -> the commit that it was; left out if there is none",
    )
    lists: dict[str, str] = Field(
        default={}, description="path of a list of files -> xxh3_128 of its bytes; left out if there is none"
    )
    parts: dict[str, list[tuple[int, int, str]]] = Field(
        default={},
        description="<source>/<path> of a large file -> first byte, number of the first record and xxh3_128 of each part, which"
        " tasks read side by side; left out if there is none",
    )
    part_bytes: int = Field(default=0, description="what a part has at least; left out if there is none")
    made_in: str = Field(
        default="",
        description="directory that relative paths of the recipe start from, relative to the run's folder, so that both may"
        ' move together; "" if it is not known or not needed',
    )


class UnitManifest(Strict):
    """`ingest/units/<unit>.json`: the partitions that a unit of raw input became; written after the last of them."""

    key: str
    partitions: list[str]
