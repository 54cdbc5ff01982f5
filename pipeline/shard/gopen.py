"""Object stores for plain `webdataset`: after `register()`, `webdataset.WebDataset("s3://bucket/…/{000000..000009}.tar")`
reads through `corpusmill.common.storage`, with credentials from the environment alone and no shell."""

from __future__ import annotations

from typing import BinaryIO

from corpusmill.common.storage import Folder

SCHEMES = ("s3", "s3a", "gs", "az", "abfs", "abfss", "memory")
_BUFFER = 4 << 20  # read ahead


def gopen(url: str, mode: str = "rb", bufsize: int = _BUFFER, **_: object) -> BinaryIO:
    """The stream of an object, as `webdataset.gopen` asks for one. Raises `ValueError` for another mode than reading,
    `FileNotFoundError` and `WorkError` as `Folder.open` does."""
    if not mode.startswith("r"):
        raise ValueError(f"{url}: opened for reading only, not '{mode}'")
    return Folder(url).open(max(bufsize, _BUFFER))


def register() -> None:
    """Register `SCHEMES` with `webdataset` in this process; forked worker processes inherit them, spawned
    ones call this themselves (`worker_init_fn`)."""
    from webdataset.gopen import gopen_schemes

    gopen_schemes.update(dict.fromkeys(SCHEMES, gopen))
