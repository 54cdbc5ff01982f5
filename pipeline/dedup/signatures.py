"""The signatures of all documents as an output, for other tools (`kernels/stored.py` reads them back)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from corpusmill.common.storage import Folder
from corpusmill.pipeline.dedup.job import Job
from corpusmill.pipeline.dedup.stored_signatures import signatures_table
from corpusmill.pipeline.engine.publish import publish_table
from corpusmill.pipeline.engine.shuffle import Done, File, once
from corpusmill.pipeline.engine.stage import Partition
from corpusmill.pipeline.text.shingles import one_array
from corpusmill.pipeline.text.shingling import Shingling
from corpusmill.schemas.manifest import hash_json


@dataclass(frozen=True)
class Signing:
    """A partition, and the stage's folder."""

    index: int
    partition: Partition
    stage: Folder


def signatures(job: Job, item: Signing) -> Done:
    """Publishes `signatures/<partition>.parquet` in the stage's folder: all `num_perm` values, not only those
    that the bands use."""
    key = hash_json([job.key, "signatures", item.partition.name, item.partition.xxh3])

    def step() -> Done:
        docs = item.partition.read(["doc_id", "text"])
        shingling = Shingling(job.params, job.params.num_perm)
        signed = shingling.sign(one_array(docs["text"]), np.arange(len(docs), dtype=np.int64))
        table = signatures_table(docs["doc_id"], signed.signatures, job.params)
        file = publish_table(item.stage, f"signatures/{item.partition.name}.parquet", table)
        return Done(key=key, files={"table": File(file=file)})

    return once(item.stage, f"scratch/signatures/{item.index:06d}", key, step)
