"""Rows of clusters by source, unit and host, from small tuples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from corpusmill.common.ids import doc_id
from corpusmill.pipeline.split.measure import Components, components_of, summed
from corpusmill.schemas.tables import ID

Row = tuple[str, int, str, int]  # source, cluster, host, bytes


def cluster(number: int) -> bytes:
    return doc_id("g", str(number))


def rows_of(rows: Sequence[Row]) -> pa.Table:
    return summed(
        pa.table(
            {
                "source": pa.array([r[0] for r in rows], pa.string()),
                "unit": pa.array([cluster(r[1]) for r in rows], ID),
                "host": pa.array([r[2] for r in rows], pa.string()),
                "cluster": pa.array([True] * len(rows), pa.bool_()),
                "docs": pa.array(np.ones(len(rows), np.int64)),
                "bytes": pa.array([r[3] for r in rows], pa.int64()),
            }
        )
    )


def components_of_rows(rows: Sequence[Row]) -> Components:
    return components_of(rows_of(rows))
