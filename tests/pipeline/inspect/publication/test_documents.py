"""Which partitions make which file."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from corpusmill.common.storage import Folder
from corpusmill.pipeline.engine.stage import Partition
from corpusmill.pipeline.inspect.publication.documents import MOST_PARTITIONS, Key, plan_files

COUNTS = st.lists(
    st.dictionaries(
        st.tuples(st.sampled_from("ab"), st.sampled_from(["train", "validation"])), st.integers(1, 9)
    ),
    max_size=150,
)


@given(COUNTS, st.integers(1, 400))
def test_every_document_is_in_one_file(found: list[dict[Key, int]], file_bytes: int) -> None:
    counts = [Counter(one) for one in found]
    partitions = [
        Partition(f"{number:03}", Folder("/nowhere"), sum(one.values()), 10 * sum(one.values()))
        for number, one in enumerate(counts)
    ]
    files = plan_files(partitions, counts, file_bytes)
    planned = Counter[tuple[str, str, str]]()
    for file in files:
        assert file.partitions and len(file.partitions) <= MOST_PARTITIONS
        mine = [counts[int(part.name)][file.source, file.split] for part in file.partitions]
        assert all(mine) and (len(mine) == 1 or 10 * sum(mine) <= file_bytes)
        planned.update((file.source, file.split, part.name) for part in file.partitions)
    assert planned == Counter(
        (*key, part.name) for part, one in zip(partitions, counts, strict=True) for key in one
    )
    paths = [file.path("parquet") for file in files]
    assert len(set(paths)) == len(paths) == sum(file.number == 0 for file in files for _ in range(file.of))


def test_names_sort_in_the_order_of_the_partitions() -> None:
    parts = [Partition(f"{number}", Folder("/nowhere"), 1, 100) for number in range(12)]
    files = plan_files(parts, [Counter({("a", "train"): 1})] * 12, 250)
    assert [file.path("jsonl") for file in files] == [
        f"data/a/train-{number:05}-of-00006.jsonl.zst" for number in range(6)
    ]
    assert [part.name for file in files for part in file.partitions] == [part.name for part in parts]
