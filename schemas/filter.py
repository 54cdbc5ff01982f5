"""The parameters of `filter`. Defaults are what a newcomer should run with; each has its reason."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, FiniteFloat, field_validator, model_validator

from corpusmill.common.errors import nearest
from corpusmill.schemas.manifest import Strict
from corpusmill.schemas.stages import Share


class LanguageParams(Strict):
    """Language identification; a document is removed when its language is not in `keep` or the model is unsure."""

    keep: list[str] | None = Field(default=None, description="ISO 639-1 codes; null keeps every language")
    threshold: Share = Field(
        default=0.65, ge=0, le=1, description="minimum probability, as in FineWeb and DCLM"
    )
    model: str | None = Field(
        default=None,
        description="language, the default, or lid.176, which both ship, or the URL of another fastText .bin/.ftz,"
        " such as GlotLID",
    )
    mixed: bool = Field(
        default=False,
        description="also measure the languages of a document's windows: language.share, language.second and"
        " language.second_share",
    )
    labels: Literal["iso639-1", "model"] = Field(
        default="iso639-1",
        description="iso639-1: eng_Latn becomes en (three letters if there is no two-letter code); model: the model's own labels",
    )


class ClassifierParams(Strict):
    """A fastText classifier: `remove_above` for what is unwanted, `remove_below` for what is wanted."""

    model: str | None = Field(
        default=None, description="URL of a fastText .bin/.ftz; default: the one shipped"
    )
    label: str | None = Field(default=None, description="the label to score; default: the shipped model's")
    input: Literal["windows", "text"] = Field(
        default="windows",
        description="windows: lower-case words in windows of 400 characters, as `classifier train` makes models for;"
        " text: the whole text as it stands, which DCLM's and Dolma's models expect",
    )
    remove_above: Share | None = Field(default=None, ge=0, le=1)
    remove_below: Share | None = Field(default=None, ge=0, le=1)


# Of a document's words those that the shipped toxicity model knows; where they are fewer, rules on toxicity are not judged.
KNOWN_WORDS: Final = "toxicity.known_words"
TRUSTED: Final = 0.6


class ToxicityParams(ClassifierParams):
    """The shipped model's labels, or a fastText classifier of your own, which has one."""

    remove_labels: dict[Literal["insult", "hate", "threat", "sexual"], Share] = Field(
        default_factory=dict,
        description="label of the shipped model, beside `toxic` -> remove above; its card has a threshold for each",
    )


class SignalModelParams(Strict):
    """A model over the stored signals, the shipped one of quality or your own (`classifier train --on-signals`)."""

    model: str | None = Field(
        default=None,
        description="path or URL of a model over signals (.json); default: the one shipped, for English",
    )
    remove_above: Share | None = Field(default=None, ge=0, le=1)
    remove_below: Share | None = Field(default=None, ge=0, le=1)


RULES_FOLDER: Final = Path(__file__).resolve().parents[1] / "configs" / "rules"
# Names that stand for several sets, in the order of judging.
RULE_GROUPS: Final = {"gopher": ("gopher_repetition", "gopher_quality")}


def rule_sets() -> list[str]:
    """Names of the rule sets that ship, one per file of `configs/rules/`, sorted."""
    return sorted(path.stem for path in RULES_FOLDER.glob("*.yaml"))


def expand_groups(names: list[str]) -> list[str]:
    """The names with each of `RULE_GROUPS` replaced by its sets: `gopher` by `gopher_repetition`, `gopher_quality`."""
    return [member for name in names for member in RULE_GROUPS.get(name, (name,))]


def is_rule_file(name: str) -> bool:
    """Whether an entry of `filter.rules` is a path or URL of a user's own file, not the name of a shipped set."""
    return "/" in name or name.endswith((".yaml", ".yml"))


class WordList(Strict):
    """A list of words and phrases; `[a.txt]` is short for `{files: [a.txt]}`."""

    files: list[str] = Field(
        min_length=1, description="text files (also .gz) with one word or phrase per line"
    )
    allow: list[str] = Field(default=[], description="files of entries to exclude from the list")


class UrlLists(Strict):
    """Lists to block documents by their URL: text files, also .gz, an entry a line; none ships."""

    domains: list[str] = Field(default=[], description="domains, each with its subdomains")
    subdomains: list[str] = Field(default=[], description="exact hosts")
    urls: list[str] = Field(default=[], description="exact URLs")
    hard_words: list[str] = Field(default=[], description="words, one of which is enough")
    soft_words: list[str] = Field(default=[], description="words, two of which are needed")
    substrings: list[str] = Field(
        default=[], description="strings anywhere in the letters and digits of the URL"
    )

    @model_validator(mode="after")
    def some(self) -> UrlLists:
        if not any(getattr(self, name) for name in type(self).model_fields):
            raise ValueError(f"give files for at least one of {', '.join(type(self).model_fields)}")
        return self


class FilterParams(Strict):
    """Signals measured once, rules judged on them."""

    rules: list[str] = Field(
        default=["gopher_repetition", "gopher_quality", "c4", "fineweb"],
        description="rule sets, in the order of judging: names of sets that ship (gopher is short for gopher_repetition and"
        " gopher_quality), or files of your own",
    )
    thresholds: dict[str, FiniteFloat] = Field(
        default_factory=dict, description="`<rule set>.<rule>` -> number instead of the published one"
    )
    disable: list[str] = Field(
        default_factory=list, description="`<rule set>.<rule>` that is measured but not applied"
    )
    skip_sources: dict[str, list[str]] = Field(
        default_factory=dict,
        description="source -> rule sets not applied to it, such as code: [c4]; `*`: all",
    )
    cut_lines: bool = Field(
        default=False,
        description="cut the lines that the chosen sets select, instead of only measuring them",
    )
    word_lists: dict[str, WordList] = Field(
        default_factory=dict, description="name of a list, such as c4_badwords -> its files; none is shipped"
    )
    urls: UrlLists | None = Field(
        default=None, description="block lists; with them the rule set `url` is applied"
    )
    plugins: list[str] = Field(
        default=[], description="Python files of your own that define signals with @signal; they are run"
    )
    language: LanguageParams | None = LanguageParams()
    toxicity: ToxicityParams | None = ToxicityParams(remove_above=0.9)
    quality: ClassifierParams | None = ClassifierParams()
    quality_signals: SignalModelParams | None = SignalModelParams()
    score_removed: bool = Field(
        default=True,
        exclude_if=lambda value: value is True,  # so that the keys of runs from before stay
        description="false: toxicity, quality and quality_signals score only documents that no other rule removes, which is faster;"
        " `what-if` then answers for thresholds of these scores alone",
    )

    @field_validator("rules")
    @classmethod
    def known(cls, value: list[str]) -> list[str]:
        """Expand `gopher`; refuse a name that is neither a shipped set nor a file."""
        value = expand_groups(value)
        for name in value:
            if not is_rule_file(name) and name not in rule_sets():
                allowed = sorted([*rule_sets(), *RULE_GROUPS])
                raise ValueError(
                    f"'{name}' is not a rule set{nearest(name, allowed)} (allowed: {', '.join(allowed)}, or a path"
                    " such as ./my_rules.yaml)"
                )
        return value

    @field_validator("skip_sources")
    @classmethod
    def expanded(cls, value: dict[str, list[str]]) -> dict[str, list[str]]:
        """`gopher` among the sets of a source stands for its two."""
        return {source: expand_groups(names) for source, names in value.items()}

    @field_validator("word_lists", mode="before")
    @classmethod
    def files_alone(cls, value: Any) -> Any:
        """`[a.txt]` in place of `{files: [a.txt]}`."""
        if not isinstance(value, dict):
            return value
        return {name: {"files": given} if isinstance(given, list) else given for name, given in value.items()}

    @field_validator("word_lists")
    @classmethod
    def plain_names(cls, value: dict[str, WordList]) -> dict[str, WordList]:
        """A list's name is the first half of its signal's."""
        for name in value:
            if re.fullmatch("[a-z0-9_]+", name) is None:
                raise ValueError(f"'{name}': a list's name may contain only small letters, digits and '_'")
        return value

    @field_validator("thresholds", mode="before")
    @classmethod
    def nested(cls, value: Any) -> Any:
        """`{c4: {sentences_min: 3}}` means `{c4.sentences_min: 3}`: so `--set filter.thresholds.c4.sentences_min=3`
        works."""
        if not isinstance(value, dict):
            return value
        flat: dict[Any, Any] = {}
        for name, given in value.items():
            flat.update(
                {f"{name}.{rule}": n for rule, n in given.items()}
                if isinstance(given, dict)
                else {name: given}
            )
        return flat
