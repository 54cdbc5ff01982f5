"""The grammar of a rule file (`configs/rules/*.yaml`, or a user's own), and the reading of one."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from operator import ge, gt, le, lt
from typing import Any, Final, Literal

from pydantic import Field, FiniteFloat, model_validator

from corpusmill.common.config import parse_yaml, validate
from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.manifest import Strict

Comparison = Literal["at_least", "at_most", "more_than", "less_than", "among"]
COMPARED: Final[dict[str, Callable[..., Any]]] = {
    "at_least": ge,
    "at_most": le,
    "more_than": gt,
    "less_than": lt,
}
COMPARISONS: Final[tuple[Comparison, ...]] = ("at_least", "at_most", "more_than", "less_than")

# What a line rule may compare, of a line without the white space around it. Ratios are shares of its characters.
LineValue = Literal[
    "words", "chars", "longest_word", "uppercase_ratio", "digit_ratio", "letter_ratio", "punctuation_ratio"
]
CONDITIONS: Final = ("value", "phrases", "pattern", "ends_in", "ends_not_in")

_NAME: Final = r"^[a-z0-9_]+$"


@dataclass(frozen=True)
class Rule:
    """`signal` must satisfy `comparison` with `threshold`, or the document is removed."""

    name: str  # <rule set>.<rule>
    signal: str
    comparison: Comparison
    threshold: float | None
    among: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()  # that it is made for; none: any

    @property
    def set_name(self) -> str:
        return self.name.split(".", 1)[0]

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "among": list(self.among), "languages": list(self.languages)}

    @classmethod
    def from_json(cls, entry: dict[str, Any]) -> Rule:
        """What `as_json` gave."""
        lists = {name: tuple(entry.get(name, ())) for name in ("among", "languages")}
        return cls(**{**entry, **lists})


@dataclass(frozen=True)
class LineRule:
    """A line that meets the condition is cut (`cut: line`), or what matched of it (`cut: match`).

    Either `value` and `comparison` are set, or `pattern`, in RE2's syntax; `negated`: lines without a match meet it.
    """

    name: str  # <rule set>.<line rule>
    cut: Literal["line", "match"] = "line"
    value: LineValue | None = None
    comparison: Comparison | None = None
    threshold: float | None = None
    pattern: str | None = None
    negated: bool = False
    most_words: int | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class _Compared(Strict):
    """A name and at most one comparison."""

    name: str = Field(pattern=_NAME)
    at_least: FiniteFloat | None = None
    at_most: FiniteFloat | None = None
    more_than: FiniteFloat | None = None
    less_than: FiniteFloat | None = None

    @property
    def comparisons(self) -> list[Comparison]:
        return [name for name in COMPARISONS if getattr(self, name) is not None]


class RuleEntry(_Compared):
    """One rule on documents: a name, a signal and exactly one comparison, which good documents satisfy."""

    signal: str
    languages: list[str] = Field(
        default=[],
        description="ISO 639-1 codes of the languages that the rule is made for; it is not judged on documents in another"
        " language that `filter.language.keep` names; default: any",
    )

    @model_validator(mode="after")
    def one_comparison(self) -> RuleEntry:
        if len(self.comparisons) != 1:
            raise ValueError(f"rule {self.name}: give exactly one of {', '.join(COMPARISONS)}")
        return self


class LineEntry(_Compared):
    """One rule on lines: a name and exactly one condition; lines that meet it are cut."""

    value: LineValue | None = None
    phrases: list[str] | None = Field(default=None, min_length=1, description="in any letter case")
    where: Literal["anywhere", "start", "end"] | None = Field(default=None, description="of `phrases`")
    pattern: str | None = Field(default=None, description="a regular expression (RE2), found anywhere")
    ends_in: list[str] | None = Field(default=None, min_length=1)
    ends_not_in: list[str] | None = Field(default=None, min_length=1)
    most_words: int | None = Field(default=None, ge=1, description="lines with more words never meet it")
    cut: Literal["line", "match"] = Field(default="line", description="the whole line, or what was found")

    @model_validator(mode="after")
    def one_condition(self) -> LineEntry:
        here = f"line rule {self.name}"
        given = [name for name in CONDITIONS if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"{here}: give exactly one of {', '.join(CONDITIONS)}")
        if len(self.comparisons) != (1 if self.value is not None else 0):
            raise ValueError(f"{here}: `value` wants exactly one of {', '.join(COMPARISONS)}, others none")
        if self.cut == "match" and given[0] not in ("phrases", "pattern"):
            raise ValueError(f"{here}: `cut: match` goes with `phrases` or `pattern`")
        if self.where is not None and self.phrases is None:
            raise ValueError(f"{here}: `where` goes with `phrases`")
        if self.most_words is not None and self.value is not None:
            raise ValueError(f"{here}: `most_words` does not go with `value`")
        for text in (self.phrases or []) + (self.ends_in or []) + (self.ends_not_in or []):
            if not text.strip():
                raise ValueError(f"{here}: an empty text is in every line")
        if self.pattern is not None:
            _check_pattern(here, self.pattern)
        return self

    def compiled(self, set_name: str) -> LineRule:
        """The rule as the kernels and RE2 take it."""
        comparison = self.comparisons[0] if self.comparisons else None
        return LineRule(
            name=f"{set_name}.{self.name}",
            cut=self.cut,
            value=self.value,
            comparison=comparison,
            threshold=getattr(self, comparison) if comparison else None,
            pattern=self._expression(),
            negated=self.ends_not_in is not None,
            most_words=self.most_words,
        )

    def _expression(self) -> str | None:
        if self.phrases is not None:
            # One blank beside a phrase goes with it, as in DCLM's substring modifier.
            blank = r"\s?" if self.cut == "match" else ""
            before = "^" if self.where == "start" else blank
            after = {"start": blank, "end": "$"}.get(self.where or "", "")
            return f"(?i){before}{_any_of(self.phrases)}{after}"
        ends = self.ends_in or self.ends_not_in
        return f"{_any_of(ends)}$" if ends is not None else self.pattern


class RuleFile(Strict):
    """A rule set as it stands in its file: rules on documents, rules on lines, or both."""

    name: str = Field(pattern=r"^[a-z0-9_]+(@[a-z0-9_]+)?$")
    origin: str
    include: list[str] = Field(
        default=[], description="sets that ship, judged just before; they keep their names"
    )
    rules: list[RuleEntry] = Field(default=[])
    lines: list[LineEntry] = Field(default=[])

    @model_validator(mode="after")
    def distinct(self) -> RuleFile:
        names = [rule.name for rule in (*self.rules, *self.lines)]
        if not names and not self.include:
            raise ValueError("rules: give at least one rule, or one under `lines`")
        if len(set(names)) != len(names):
            raise ValueError("rules: a name appears twice")
        return self


@dataclass(frozen=True)
class LoadedSet:
    """A rule set with its published thresholds; `where` is its file, `include` names the sets judged before it."""

    name: str
    include: tuple[str, ...]
    rules: tuple[Rule, ...]
    lines: tuple[LineRule, ...]
    where: str


def family_of(set_name: str) -> str:
    """A set's name as the first half of a signal's name: `gopher_dolma` for `gopher@dolma`."""
    return set_name.replace("@", "_")


def load_file(where: str) -> LoadedSet:
    """The rule set in the file at a path or URL; relative paths start at the working directory.

    Raises `UserError` naming the file and what is wrong in it.
    """
    try:
        text = Folder(where).read().decode("utf-8")
    except FileNotFoundError:
        raise UserError(
            f"{where}: no such file; filter.rules takes names of sets and paths of rule files"
        ) from None
    except UnicodeDecodeError:
        raise UserError(f"{where}: not a text file in UTF-8") from None
    file = validate(RuleFile, parse_yaml(text, where), where)
    rules = tuple(
        Rule(
            f"{file.name}.{r.name}",
            r.signal,
            r.comparisons[0],
            getattr(r, r.comparisons[0]),
            languages=tuple(r.languages),
        )
        for r in file.rules
    )
    return LoadedSet(
        file.name, tuple(file.include), rules, tuple(line.compiled(file.name) for line in file.lines), where
    )


def _any_of(texts: list[str]) -> str:
    return f"(?:{'|'.join(re.escape(text) for text in texts)})"


def _check_pattern(here: str, pattern: str) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    if re.search(r"(?<!\\)(?:\\\\)*\\C", pattern):
        raise ValueError(f"{here}: pattern: \\C is a byte, and may cut a character in two; use . or (?s).")
    try:
        # Arrow matches by RE2. To make an array of a list it would import pandas, where there is one.
        pc.match_substring_regex(pa.nulls(1, pa.string()), pattern)
    except pa.ArrowInvalid as error:
        reason = str(error).removeprefix("Invalid regular expression: ")
        raise ValueError(f"{here}: pattern: not a regular expression of RE2: {reason}") from None
