"""The choice of validation groups: nothing leaks, nothing is lost, no source is emptied, whatever comes in."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.pipeline.split.choose import GIANT, MOST, Choice, choose
from corpusmill.schemas.split import SourceSplit, SplitParams
from tests.pipeline.split.made import Row, cluster, components_of_rows

HOSTS = ["", "", "a.org", "b.org", "c.org", "d.org"]


def chosen(rows: list[Row], seed: int = 0, **params: object) -> Choice:
    made = components_of_rows(rows)
    wanted = SplitParams.model_validate(params)
    return choose(made, {name: wanted.target(name) for name in made.names}, seed)


own = st.builds(
    SourceSplit,
    only=st.sampled_from([None, None, None, "train", "validation"]),
    min_documents=st.none() | st.integers(0, 5),
)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"), st.integers(0, 15), st.sampled_from(HOSTS), st.integers(0, 1000)
        ),
        max_size=60,
    ),
    st.floats(0, 0.99), st.none() | st.integers(0, 5000), st.integers(0, 4),
    st.dictionaries(st.sampled_from("abc"), own), st.integers(0, 99),
)  # fmt: skip
def test_nothing_leaks_nothing_is_lost_and_no_source_is_emptied(
    rows: list[Row],
    share: float,
    tokens: int | None,
    least: int,
    per_source: dict[str, SourceSplit],
    seed: int,
) -> None:
    choice = chosen(
        rows,
        seed,
        validation_share=share,
        validation_tokens=tokens,
        min_documents=least,
        per_source=per_source,
    )
    validation = set(choice.units.to_pylist())
    assert choice.units.to_pylist() == sorted(validation)
    side = [cluster(r[1]) in validation for r in rows]
    # No leak: neither a group nor a host on both sides.
    for of in (lambda r: r[1], lambda r: r[2] or None):
        train = {of(r) for r, v in zip(rows, side, strict=True) if not v} - {None}
        assert not train & {of(r) for r, v in zip(rows, side, strict=True) if v}
    for name, splits in choice.sources().items():
        mine = [(r, v) for r, v in zip(rows, side, strict=True) if r[0] == name]
        for split, part in (("train", False), ("validation", True)):
            there = [r for r, v in mine if v == part]
            assert splits[split] == {
                "docs": len(there), "bytes": sum(r[3] for r in there), "groups": len({r[1] for r in there})
            }  # fmt: skip
        only = per_source.get(name, SourceSplit()).only
        if only == "validation":
            continue
        assert splits["train"]["groups"] >= 1
        total = sum(r[3] for r, _ in mine)
        most = MOST if only or tokens is not None else max(MOST, share)
        assert splits["validation"]["bytes"] <= most * total + 1e-6
    if not any(one.only == "validation" for one in per_source.values()):
        for name, one in per_source.items():
            if one.only == "train" and name in choice.made.names:
                assert choice.sources()[name]["validation"]["docs"] == 0


@given(st.integers(0, 99), st.sampled_from([0.01, 0.1, 0.3, 0.7]))
def test_shares_are_met_where_groups_are_small(seed: int, share: float) -> None:
    rows = [("web", i, "", 50 + i % 7) for i in range(300)]
    sizes = chosen(rows, seed, validation_share=share).sources()["web"]
    total = sizes["train"]["bytes"] + sizes["validation"]["bytes"]
    got = sizes["validation"]["bytes"] / total
    # Beyond half of a source the share is also the most that validation may hold.
    assert share <= got < share + 0.005 if share < MOST else share - 0.005 < got <= share


def test_sizes_in_place_of_a_share() -> None:
    rows = [(name, i, "", 1024) for i in range(4096) for name in ("web",)]
    for params, least in (
        ({"validation_mb": 1}, 1 << 20),
        ({"validation_tokens": 100_000}, 400_000),
        ({"validation_tokens": 100_000, "bytes_per_token": 2.5}, 250_000),
        ({"per_source": {"web": {"validation_tokens": 10_000}}}, 40_000),
        ({"validation_mb": 1, "per_source": {"web": {"validation_share": 0.25}}}, 1 << 20),
    ):
        got = chosen(rows, 3, **params).sources()["web"]["validation"]["bytes"]
        assert least <= got < least + 1024
    half = chosen(rows, 3, validation_mb=100).sources()["web"]
    assert half["validation"]["bytes"] == half["train"]["bytes"]  # no more than half of a source


def test_one_source_may_want_something_else() -> None:
    rows = [(name, (n * 100) + i, "", 100) for n, name in enumerate(("a", "b", "c")) for i in range(100)]
    made = chosen(
        rows, 1, validation_share=0.1,
        per_source={"b": {"only": "validation"}, "c": {"only": "train"}},
    ).sources()  # fmt: skip
    assert [made[n]["validation"]["docs"] for n in "abc"] == [10, 100, 0]


def test_a_source_that_is_validation_alone_takes_its_near_copies_along() -> None:
    rows = [
        ("held", 1, "", 10),
        ("held", 2, "", 10),
        ("web", 2, "", 10),
        *(("web", i, "", 10) for i in range(3, 9)),
    ]
    made = chosen(rows, 0, per_source={"held": {"only": "validation"}, "web": {"only": "train"}})
    assert made.sources()["held"]["train"]["docs"] == 0
    assert made.sources()["web"]["validation"]["docs"] == 1


def test_what_would_empty_another_source_stays_in_train_and_is_counted() -> None:
    rows = [("held", 1, "x.org", 10), ("web", 2, "x.org", 10), ("held", 3, "", 10)]
    made = chosen(rows, 0, per_source={"held": {"only": "validation"}})
    assert made.sources()["web"] == {
        "train": {"docs": 1, "bytes": 10, "groups": 1}, "validation": {"docs": 0, "bytes": 0, "groups": 0}
    }  # fmt: skip
    assert made.sources()["held"]["train"]["docs"] == 1
    assert made.passed_over["held"] == {"last": 1}


@pytest.mark.parametrize("seed", range(10))
def test_a_giant_is_left_alone(seed: int) -> None:
    """Nine tenths of a source on one host: validation comes out of the rest."""
    rows = [("web", i, "giant.org" if i < 90 else "", 10) for i in range(100)]
    sizes = chosen(rows, seed, validation_share=0.02).sources()["web"]["validation"]
    assert sizes["bytes"] == 20
    # A component of a third of the source is not taken for two hundredths either.
    rows = [("web", i, "third.org" if i < 33 else "", 10) for i in range(100)]
    sizes = chosen(rows, seed, validation_share=0.02).sources()["web"]["validation"]
    assert sizes["bytes"] <= (0.02 + GIANT) * 1000


@pytest.mark.parametrize("seed", range(10))
def test_two_documents_give_the_smaller_to_validation(seed: int) -> None:
    sizes = chosen([("web", 0, "", 90), ("web", 1, "", 10)], seed).sources()["web"]
    assert sizes["validation"] == {"docs": 1, "bytes": 10, "groups": 1}


@pytest.mark.parametrize("seed", range(10))
def test_of_giants_alone_the_smallest_are_taken(seed: int) -> None:
    rows = [("web", i, "", size) for i, size in enumerate((30, 25, 20, 15, 10))]
    assert chosen(rows, seed).sources()["web"]["validation"]["bytes"] == 10
    two = chosen(rows, seed, min_documents=2).sources()["web"]["validation"]
    assert two == {"docs": 2, "bytes": 25, "groups": 2}


@pytest.mark.parametrize("seed", range(20))
def test_one_huge_document_does_not_become_half_of_the_source(seed: int) -> None:
    rows = [("web", 0, "", 100_000), *(("web", i, "", 10) for i in range(1, 21))]
    sizes = chosen(rows, seed, validation_share=0.02).sources()["web"]["validation"]
    assert 0 < sizes["bytes"] < 50_000


def test_no_share_is_no_validation_and_least_counts_hold() -> None:
    rows: list[Row] = [("web", i, "", 10) for i in range(50)]
    assert len(chosen(rows, 1, validation_share=0.0, min_documents=5).units) == 0
    assert len(chosen(rows, 1, validation_mb=0, min_documents=5).units) == 0
    assert len(chosen(rows, 1, validation_share=1e-9, min_documents=4).units) == 4
    assert len(chosen([], 1, validation_share=0.5).units) == 0


def test_another_seed_is_another_split() -> None:
    rows: list[Row] = [("web", i, "", 10) for i in range(100)]
    assert chosen(rows, 1).units != chosen(rows, 2).units


def test_components_are_joined_through_hosts_and_clusters() -> None:
    rows: list[Row] = [
        ("a", 1, "x.org", 5), ("a", 2, "x.org", 7), ("b", 2, "y.org", 1), ("b", 3, "y.org", 1),
        ("b", 4, "", 1), ("a", 5, "z.org", 2), ("a", 4, "", 1),
    ]  # fmt: skip
    made = components_of_rows(rows)
    place = {made.units[i].as_py(): int(made.component[i]) for i in range(len(made.units))}
    assert place[cluster(1)] == place[cluster(2)] == place[cluster(3)]
    assert len({place[cluster(n)] for n in (1, 4, 5)}) == 3
    assert made.largest == {
        "docs": 4, "bytes": 14, "sources": ["a", "b"], "hosts": 2, "largest_hosts": ["x.org", "y.org"]
    }  # fmt: skip
    assert int(made.docs.sum()) == 7 and int(made.bytes.sum()) == 18
    assert np.all(made.component <= np.arange(len(made.units)))
