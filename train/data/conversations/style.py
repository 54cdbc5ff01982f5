"""A style guide as the system prompt of conversations: a sentence for each rule."""

from __future__ import annotations

from corpusmill.common.config import load
from corpusmill.schemas.style import Rule, StyleGuide


def read_guide(file: str) -> StyleGuide:
    """A guide from its YAML file. Raises `UserError` naming the wrong key."""
    return load(StyleGuide, file)


def prompt_of(guide: StyleGuide) -> str:
    """The guide as a system prompt: a sentence for each rule."""
    return " ".join(filter(None, (guide.prompt, *(sentence(rule) for rule in guide.rules))))


def sentence(rule: Rule) -> str:
    """A rule as a sentence."""
    if rule.says is not None:
        return rule.says
    value = getattr(rule, rule.kind)
    if isinstance(value, list):
        value = ", ".join(f'"{one}"' for one in value)
    return {
        "max_words": f"Use at most {value} words.", "min_words": f"Use at least {value} words.",
        "max_sentences": f"Write at most {value} sentences.", "forbidden": f"Never write {value}.",
        "required": f"Write one of {value}.", "begins_with": f'Begin with "{value}".', "ends_with": f'End with "{value}".',
        "matches": f"Match the pattern {value}.", "max_grade": f"Write so that a reader of {value} school years understands.",
        "case": {
            "lower": "Write in lower case.", "upper": "Write in upper case.",
            "sentence": "Begin each sentence with a capital letter.",
        }.get(str(value), ""),
        "format": {
            "plain": "Write plain text without Markdown.", "json": "Answer with one JSON value alone.",
            "list": "Write a list, an item a line.",
        }.get(str(value), ""),
    }[rule.kind]  # fmt: skip
