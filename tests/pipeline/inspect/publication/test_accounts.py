"""What of a report and a recipe goes out."""

from __future__ import annotations

from corpusmill.pipeline.inspect.publication.accounts import _public_recipe, _without_excerpts


def test_every_list_of_excerpts_is_emptied() -> None:
    rows = [{"rule": "r", "texts": [{"doc_id": "0", "text": "secret"}], "counts": [1, 2]}]
    new = {
        "near_threshold": [{"before": "a", "tag": "b", "after": "c"}],
        "places": [{"locator": "me@example.com.txt"}],
    }
    assert _without_excerpts({"samples": rows, "further": new, "flow": [{"stage": "ingest"}]}) == {
        "samples": [{"rule": "r", "texts": [], "counts": [1, 2]}],
        "further": {"near_threshold": [], "places": []},
        "flow": [{"stage": "ingest"}],
    }


def test_of_a_recipe_public_addresses_stay() -> None:
    recipe = {
        "name": "small",
        "sources": {
            "web": {
                "paths": ["hf://datasets/o/n@main/x", "https://me:pw@h.org/a.jsonl?token=x", "s3://bucket/private/*.gz"],
                "license": "CC-BY-4.0 AND MIT/X11", "homepage": "https://h.org/about",
            },
            "mine": {"paths": ["/home/me/letters"], "files_from": {"path": "/home/me/list.csv"}, "priority": 2,
                     "license_files": ["/home/me/COPYING"]},
        },
        "tokenizer": {"compare": ["/models/gpt2/tokenizer.json"]},
        "decontaminate": {"against": ["evals/a.jsonl"], "ngram": 13},
        "stages": ["ingest", {"python": "my_stages:shorten"}],
    }  # fmt: skip
    assert _public_recipe(recipe) == {
        "name": "small",
        "sources": {
            "web": {
                "paths": ["hf://datasets/o/n@main/x", "https://h.org/a.jsonl"],
                "license": "CC-BY-4.0 AND MIT/X11", "homepage": "https://h.org/about",
            },
            "mine": {"priority": 2},
        },
        "tokenizer": {"compare": ["tokenizer.json"]},
        "decontaminate": {"against": ["a.jsonl"], "ngram": 13},
        "stages": ["ingest", {"python": "my_stages:shorten"}],
    }  # fmt: skip
