"""The fastText library: importing it, finding a model by name, path or URL, checking and loading it, and training, which runs
in a process of its own: `python -m corpusmill.pipeline.filter.classifiers.fasttext_model < options.json`.

With one thread, fastText 0.9 gives random values to the first tenth of its input matrix only (densematrix.cc, `uniform`: a
tenth per thread); the rest is what the memory held, which its aligned allocation does not clear. Here glibc clears it, so that
a training makes the same model every time; elsewhere it may end in "Encountered NaN".
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import xxhash

from corpusmill.common.errors import UserError, WorkError
from corpusmill.common.ids import checksum
from corpusmill.common.storage import Folder

MODELS: Final = Path(__file__).resolve().parents[1] / "models"
LANGUAGE_MODELS: Final = ("language", "lid.176")  # those that ship, as a recipe names them
LANGUAGE_MODEL: Final = "language.ftz"  # the default
LID_176: Final = "lid.176.ftz"
# What a section of the recipe uses without a model of the user's own.
SHIPPED: Final = {
    "language": LANGUAGE_MODEL, "toxicity": "toxicity.safetensors", "quality": "quality.ftz",
    "quality_signals": "quality_signals.json",
}  # fmt: skip
CACHE_ENV: Final = "CORPUSMILL_CACHE"
LABEL: Final = "__label__"  # what labels begin with, in a model and in the lines that it learns from


@dataclass(frozen=True)
class ModelFile:
    """A model on this machine. `xxh3` is of its bytes; `label` is what a shipped classifier scores, and
    `languages` those that it was trained on (none: it scores any text); `profile` is the file of what is known of a
    language model's labels (`language.Profile`), where there is one."""

    path: str
    xxh3: str
    label: str | None = None
    languages: tuple[str, ...] = ()
    profile: str | None = None

    @property
    def key(self) -> str:
        """What a stage's key names the model by: its checksum, and that of its profile where it has one."""
        return self.xxh3 if self.profile is None else f"{self.xxh3}+{_xxh3(Path(self.profile))}"


def fasttext() -> Any:
    """The module, with its warnings off.

    Raises `WorkError` if the package installed under that name can only predict (fasttext-predict).
    """
    import fasttext as module

    if not hasattr(module, "train_supervised"):
        raise WorkError(
            "the installed `fasttext` cannot train (it is fasttext-predict): pip uninstall fasttext-predict,"
            " then pip install --force-reinstall fasttext-numpy2-wheel"
        )
    module.FastText.eprint = lambda *_: None  # it writes a warning at each load
    return module


def shipped(name: str) -> ModelFile:
    """A model of this folder; raises `WorkError` if its bytes are not those of `models/models.json`."""
    known = json.loads((MODELS / "models.json").read_text(encoding="utf-8"))[name]
    path, xxh3 = MODELS / name, known["xxh3"]
    try:
        found = _xxh3(path)
    except FileNotFoundError:
        raise WorkError(f"{path}: the shipped model is missing; install the package again") from None
    if found != xxh3:
        raise WorkError(
            f"{path}: the shipped model is damaged (xxh3 {found}, not {xxh3}); install the package again"
        )
    profile = known.get("profile")
    return ModelFile(
        str(path), xxh3, known.get("label"), tuple(known.get("languages", ())),
        None if profile is None else str(MODELS / profile),
    )  # fmt: skip


def find(url: str) -> ModelFile:
    """The fastText .bin or .ftz at a path or URL; `#sha256=<hex>` after it is checked.

    A remote model is fetched once and kept by its checksum under `$CORPUSMILL_CACHE` (default
    `~/.cache/corpusmill`); the same address with another size or change tag is fetched again. Raises
    `UserError` for a model that is not there or not the one named by the checksum.
    """
    address, _, fragment = url.partition("#")
    kind, _, wanted = fragment.partition("=")
    if fragment and kind != "sha256":
        raise UserError(f"model {url}: '#{fragment}' is not understood; allowed: #sha256=<hex>")
    try:
        place = Folder(address)
        entry = place.entry()
        identity = f"{place.url}\n{entry.size}\n{entry.tag}"
        path = Path("/" + place.path) if place.local else _fetched(place, identity)
    except FileNotFoundError:
        raise UserError(f"model {address}: no such file") from None
    try:
        if wanted and (found := _sha256(path)) != wanted.lower():
            raise UserError(f"model {address}: its sha256 is {found}, not {wanted}: not the model you named")
        return ModelFile(str(path), _xxh3(path))
    except OSError as error:
        raise UserError(f"model {address}: cannot be read: {error.strerror}") from None


@lru_cache(maxsize=8)
def load(path: str, xxh3: str) -> Any:
    """The model, loaded once per process; raises `UserError` if fastText cannot read it."""
    check(path, xxh3)
    try:
        return fasttext().load_model(path)
    except (ValueError, MemoryError) as error:
        raise UserError(f"{path}: not a fastText model that can be loaded: {error}") from None


def check(path: str, xxh3: str) -> None:
    """Raises `WorkError` if the bytes of the file are not those of the checksum."""
    if _xxh3(Path(path)) != xxh3:
        raise WorkError(f"{path}: the model changed while the run was using it (checksum differs); run again")


def plain_label(label: str) -> str:
    """A model's label without the prefix."""
    return label.removeprefix(LABEL)


def predict(model: Any, line: str, k: int) -> list[tuple[float, str]]:
    """The k most probable (probability in [0, 1], label); all of them for k = -1. `line` holds no line feed.

    `model.f` is used since `model.predict` of one text fails with NumPy 2.
    """
    found = model.f.predict(line + "\n", k, 0.0, "strict")
    return [(min(max(float(p), 0.0), 1.0), plain_label(label)) for p, label in found]


def _fetched(place: Folder, identity: str) -> Path:
    """The local copy of a remote model. The identity points to a checksum, the checksum names the file."""
    cache = Folder(os.environ.get(CACHE_ENV) or Path.home() / ".cache" / "corpusmill") / "models"
    pointer = cache / f"{checksum(identity.encode())}.json"
    try:
        known = json.loads(pointer.read())["xxh3"]
        copy = Path("/" + (cache / f"{known}.bin").path)
        if _xxh3(copy) == known:
            return copy
    except (FileNotFoundError, ValueError, KeyError):
        pass  # not fetched yet, or damaged: fetch it
    data = place.read()
    known = checksum(data)
    (cache / f"{known}.bin").write(data)
    pointer.write(json.dumps({"url": place.url, "xxh3": known}).encode())
    return Path("/" + (cache / f"{known}.bin").path)


def _xxh3(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, xxhash.xxh3_128).hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# glibc fills what it gives out with the inverse of this byte, so with zeros, and what is freed with the byte; except for
# small blocks of its per-thread cache, which is therefore off.
_ZEROED = {"MALLOC_PERTURB_": "255", "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}

# Where memory is not cleared, "Encountered NaN" is a matter of chance, and another process may succeed.
ATTEMPTS = 5


def fit(source: Path, target: Path, train: dict[str, Any], quantize: dict[str, Any] | None) -> None:
    """Train on the labelled lines of `source`, quantise unless `quantize` is None, save at `target`.

    `train` and `quantize` are fastText's own options. Raises `WorkError` with fastText's reason.
    """
    options = {"source": str(source), "target": str(target), "train": train, "quantize": quantize}
    environment = {**os.environ, **_ZEROED, "PYTHONPATH": os.pathsep.join(p or "." for p in sys.path)}
    messages: list[str] = []
    for _ in range(ATTEMPTS):
        done = subprocess.run(
            [sys.executable, "-m", "corpusmill.pipeline.filter.classifiers.fasttext_model"],
            input=json.dumps(options).encode(), env=environment, capture_output=True, check=False,
        )  # fmt: skip
        if done.returncode == 0 and target.exists():
            return
        messages = done.stderr.decode("utf-8", "replace").strip().splitlines() or [
            f"exit code {done.returncode}"
        ]
    raise WorkError(f"fastText could not train in {ATTEMPTS} attempts: {messages[-1]}")


def _main() -> None:
    options = json.loads(sys.stdin.buffer.read())
    module = fasttext()
    model = module.train_supervised(input=options["source"], thread=1, verbose=0, **options["train"])
    if options["quantize"] is not None:
        model.quantize(input=options["source"], thread=1, verbose=0, **options["quantize"])
    model.save_model(options["target"])


if __name__ == "__main__":
    _main()
