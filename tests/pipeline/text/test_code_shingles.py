"""Shingles of source code: the kernel equals the rules in plain Python; copies with other names are found, other code is not."""

from __future__ import annotations

import inspect
import itertools
import random
import re
import textwrap
from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.pipeline.dedup.quality import plain, plain_code
from corpusmill.pipeline.text.shingling import Shingling
from corpusmill.schemas.dedup import DedupParams

HERE = Path(__file__).read_text(encoding="utf-8")
OTHER = inspect.getsource(textwrap)


def sets(texts: list[str], **params: object) -> list[set[int]]:
    shingling = Shingling(DedupParams.model_validate({"preset": "code", **params}), 8)
    bounds, hashes = shingling.sets(pa.array(texts, pa.large_string()), np.arange(len(texts)))
    return [set(hashes[i:j].tolist()) for i, j in itertools.pairwise(bounds)]


def jaccard(a: str, b: str) -> float:
    ours, theirs = sets([a, b])
    found = len(ours & theirs) / max(1, len(ours | theirs))
    assert abs(found - plain.jaccard(plain_code.shingles(a, 8), plain_code.shingles(b, 8))) < 1e-9
    return found


LINES = st.lists(
    st.sampled_from(
        [
            "x = f(a, b)",
            "if x:",
            "    return y",
            "table = [1, 2, 'a', 'b']",
            "# note",
            "import os",
            "z.append(x + 1)",
        ]
    ),
    max_size=60,
).map("\n".join)


@settings(max_examples=60)
@given(LINES, LINES, st.integers(1, 9))
def test_the_kernel_equals_the_plain_rules(a: str, b: str, ngram: int) -> None:
    ours = sets([a, b], ngram=ngram)
    theirs = [plain_code.shingles(text, ngram) for text in (a, b)]
    assert [len(ours[0]), len(ours[1]), len(ours[0] & ours[1])] == [
        len(theirs[0]), len(theirs[1]), len(theirs[0] & theirs[1]),
    ]  # fmt: skip


def test_whole_files_equal_the_plain_rules_and_are_not_alike() -> None:
    assert jaccard(HERE, OTHER) < 0.2


def test_another_name_everywhere_is_the_same_code() -> None:
    chance, new = random.Random(1), {}
    kept = {"self", "None", "True", "False", "re", "super", "_"}

    def rename(match: re.Match[str]) -> str:
        name = match[0]
        if name in plain_code.KEYWORDS | kept:
            return name
        return new.setdefault(name, f"{chance.choice('abcdefg')}{len(new)}")

    lines = re.sub(r'(?s)""".*?"""', "", OTHER).split("\n")
    code = "\n".join(line for line in lines if not re.search("[\"'#]", line))
    renamed = re.sub(r"\b[A-Za-z_]\w*", rename, code)
    assert jaccard(code, renamed) > 0.85
    swapped = re.sub(r"\b(text|width|indent)\b", lambda m: chance.choice(("text", "width", "indent")), code)
    assert jaccard(code, swapped) < jaccard(code, renamed)


def test_short_files_and_tables_are_compared_as_written() -> None:
    getter = "class A {{\n  int {0}() {{ return {0}_; }}\n}}\n"
    assert jaccard(getter.format("width"), getter.format("width").replace("  ", "\t")) == 1.0
    assert jaccard(getter.format("width"), getter.format("colour")) < 0.3
    one, other = (
        "\n".join(
            f"    {{ 0x{chance.randrange(1 << 16):04x}, {chance.randrange(100)} }}," for _ in range(200)
        )
        for chance in (random.Random(1), random.Random(2))
    )
    head = "static const struct pair table[] = {\n"
    assert jaccard(head + one, head + other) < 0.1
    assert (
        jaccard(
            head + one, head + "\n".join(f"/* {n} */{line.strip()}" for n, line in enumerate(one.split("\n")))
        )
        == 1.0
    )


def test_texts_without_tokens_have_no_shingles() -> None:
    assert (
        sets(["", "// only a comment\n", " ;,\n", "x"]) == [set(), set(), set(), sets(["x"])[0]]
        and sets(["x"])[0]
    )
