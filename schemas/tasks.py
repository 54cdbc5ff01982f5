"""Evaluation tasks: how rows of data become prompts, choices and right answers. A task is a YAML file with the key names of
lm-evaluation-harness; texts in it are Jinja2 templates of a row's columns, or the name of one."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from corpusmill.schemas.manifest import Strict

OutputType = Literal["multiple_choice", "loglikelihood", "loglikelihood_rolling", "schema", "generate_until"]
CHOICE: tuple[OutputType, ...] = ("multiple_choice", "schema")
# Figures of all items together, and their names in `corpusmill.train.evaluate.metrics.classification`.
CLASSES = {
    "f1": "f1",
    "f1_macro": "f1_macro",
    "precision": "precision",
    "recall": "recall",
    "mcc": "matthews",
}
# By metric: where it is defined, and how lm-evaluation-harness names the way from items to the figure.
METRICS: dict[str, tuple[tuple[OutputType, ...], str]] = {
    "acc": ((*CHOICE, "loglikelihood"), "mean"),
    "acc_norm": (("multiple_choice",), "mean"),
    "acc_bytes": (("multiple_choice",), "mean"),
    "acc_mutual_info": (("multiple_choice",), "mean"),
    "brier_score": (CHOICE, "brier_score"),
    "likelihood_diff": (CHOICE, "mean"),
    "pct_stereotype": (CHOICE, "mean"),
    "gold_logprob_per_byte": ((*CHOICE, "loglikelihood"), "mean"),
    **{name: (("multiple_choice",), name) for name in CLASSES},
    "perplexity": (("loglikelihood",), "perplexity"),
    "bits_per_byte": (("loglikelihood_rolling",), "bits_per_byte"),
    "byte_perplexity": (("loglikelihood_rolling",), "weighted_perplexity"),
    "word_perplexity": (("loglikelihood_rolling",), "weighted_perplexity"),
    "exact_match": (("multiple_choice", "generate_until"), "mean"),
    "squad_exact": (("generate_until",), "mean"),
    "squad_f1": (("generate_until",), "mean"),
    "number_strict": (("generate_until",), "mean"),
    "number_flexible": (("generate_until",), "mean"),
    **{name: (("generate_until",), name) for name in ("bleu", "chrf", "chrf++")},
    **dict.fromkeys(("rouge", "rouge-stemmed", "meteor"), (("generate_until",), "mean")),
}
DEFAULT_METRICS: dict[OutputType, list[str]] = {
    "multiple_choice": ["acc", "acc_norm", "gold_logprob_per_byte"],
    "schema": ["acc", "gold_logprob_per_byte"],
    "loglikelihood": ["acc", "perplexity"],
    "loglikelihood_rolling": ["bits_per_byte", "byte_perplexity", "word_perplexity"],
    "generate_until": ["exact_match"],
}


def _listed(value: Any) -> Any:
    """One text as a list of it."""
    return [value] if isinstance(value, str) else value


def _named(value: Any) -> Any:
    """A metric by its name alone, as the mapping that has the name."""
    return {"metric": value} if isinstance(value, str) else value


def _pattern(value: str) -> str:
    """A regular expression of Python."""
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None
    return value


Texts = Annotated[list[str], BeforeValidator(_listed)]
Pattern = Annotated[str, AfterValidator(_pattern)]


class Hub(Strict):
    """Where `corpusmill task-data` finds the rows on the Hugging Face Hub."""

    repo: str = Field(pattern=r"^[^/@]+/[^/@]+$", description="data set, OWNER/NAME")
    config: str = Field(
        default="default", description="its configuration; with a *, several: rows get a column hub_config"
    )
    split: str = Field(description="train, validation, test, ...")
    revision: str = Field(
        default="refs/convert/parquet",
        description="branch, tag or commit; the default is the Hub's own copy of each data set as Parquet",
    )
    files: str | None = Field(
        default=None, description="files to read, as data/*.jsonl; default: CONFIG/SPLIT/*.parquet"
    )


class Fewshot(Strict):
    """Examples that come before each question."""

    data: Texts = Field(default=[], description="files of examples, relative to the task's file")
    hub: Hub | None = Field(default=None, description="where `corpusmill task-data` finds them")
    samples: list[dict[str, Any]] = Field(default=[], description="rows given here instead of in files")
    sampler: Literal["first_n", "random", "default"] = Field(
        default="random", description="the first ones, or others for each question; default: random"
    )
    seed: int = Field(default=1234, description="of random; 1234 is lm-evaluation-harness's")
    group: str | None = Field(
        default=None,
        description="only examples with the same value of this template or column, such as subject",
    )


class Generation(Strict):
    """How texts are generated: greedily by default."""

    until: Texts | None = Field(
        default=None, description="texts before which it ends, at most 16; default: fewshot_delimiter"
    )
    max_gen_toks: int = Field(default=256, ge=1, description="tokens at most")
    do_sample: bool | None = Field(default=None, description="false: temperature 0")
    temperature: float = Field(default=0.0, ge=0, description="0: always the likeliest token")
    top_k: int = Field(default=0, ge=0, description="sample from the k likeliest tokens; 0: from all")
    top_p: float = Field(
        default=1.0, gt=0, le=1, description="sample from the likeliest tokens of this total"
    )

    @model_validator(mode="after")
    def _few(self) -> Self:
        if len(self.until or []) > 16:
            raise ValueError(f"until: at most 16 texts, has {len(self.until or [])}")
        return self


class Step(Strict):
    """One step from a generated text to what is compared."""

    function: Literal["regex", "remove_whitespace", "take_first", "lowercase"] = Field(
        description="regex: what a pattern matches; remove_whitespace: without white space around it; take_first: nothing"
    )
    regex_pattern: Pattern = Field(default=r"#### (\-?[0-9\.\,]+)", description="of regex")
    group_select: int = Field(default=0, description="of regex: which match, -1 the last one")
    fallback: str = Field(default="[invalid]", description="of regex: what stands for no match")


class Filter(Strict):
    """A way from a generated text to what is compared; each one of several gives figures of its own."""

    name: str = Field(description="of several: comes behind the metric's name, as exact_match,strict-match")
    filter: list[Step] = Field(description="steps, in order")


class Metric(Strict):
    """A figure of the task."""

    metric: str = Field(description="its name")
    aggregation: str | None = Field(
        default=None, description="for files of lm-evaluation-harness: only that of the metric is allowed"
    )
    higher_is_better: bool | None = Field(
        default=None, description="for files of lm-evaluation-harness: no effect"
    )
    ignore_case: bool = Field(default=False, description="of exact_match: in lower case")
    ignore_punctuation: bool = Field(default=False, description="of exact_match: without ASCII punctuation")
    ignore_numbers: bool = Field(default=False, description="of exact_match: without digits")
    regexes_to_ignore: list[Pattern] = Field(
        default=[], description="of exact_match: patterns that are removed first"
    )

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.metric not in METRICS:
            from corpusmill.common.errors import nearest

            raise ValueError(
                f"no metric '{self.metric}'{nearest(self.metric, METRICS)} (allowed: {', '.join(METRICS)})"
            )
        expected = METRICS[self.metric][1]
        if self.aggregation not in (None, "mean", expected):
            raise ValueError(f"aggregation of {self.metric} is {expected}, not {self.aggregation}")
        return self


class Task(Strict):
    """A task. Templates see the columns of a row, `row_number` (its place in the data, from 0), and what `columns` adds."""

    task: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$", description="its name")
    about: str = Field(default="", description="what it measures, in one line")
    data: Texts = Field(
        default=[],
        description="files of rows (.jsonl, .json, .csv, .tsv, .txt, each also .gz; .parquet), relative to this file",
    )
    hub: Hub | None = Field(default=None, description="where `corpusmill task-data` finds them")
    output_type: OutputType = Field(
        default="generate_until",
        description="multiple_choice: continuations of one context are compared; schema: one continuation of several"
        " contexts; loglikelihood: one continuation; loglikelihood_rolling: a whole text, window by window;"
        " generate_until: a text is generated",
    )
    columns: dict[str, str] = Field(
        default={},
        description="columns that are added to each row, in this order; one that reads as a list is one",
    )
    description: str = Field(default="", description="begins each prompt, before the examples")
    doc_to_text: str = Field(
        default="", description="the question; of schema: the number of the right context"
    )
    doc_to_choice: list[str] | str | None = Field(
        default=None, description="the choices: templates, or one that gives a list; of schema: the contexts"
    )
    doc_to_target: int | list[int] | str = Field(
        default="",
        description="the right choice, by number (from 0), several numbers, or text; or the right text, or a list of them",
    )
    target_delimiter: str = Field(default=" ", description="between question and answer")
    fewshot_delimiter: str = Field(default="\n\n", description="behind each example")
    num_fewshot: int = Field(default=0, ge=0, description="examples in each prompt")
    fewshot_config: Fewshot = Field(
        default=Fewshot(), description="where they come from; default: the other rows of the data"
    )
    stride: int | None = Field(
        default=None,
        ge=1,
        description="of loglikelihood_rolling: tokens that each window after the first scores, the others before them being"
        " context; default: all of the window",
    )
    generation_kwargs: Generation = Field(default=Generation(), description="of generate_until")
    filter_list: list[Filter] = Field(default=[], description="of generate_until: what is compared of a text")
    metric_list: list[Annotated[Metric, BeforeValidator(_named)]] = Field(
        default=[], description="figures, by name or with settings; default: those of the output type"
    )
    id: str = Field(default="{{row_number}}", description="of an item, unique in the task")
    cluster: str | None = Field(
        default=None, description="items with the same one are not independent, as questions on one passage"
    )
    slices: dict[str, str] = Field(
        default={}, description="figures are given for each value of these as well"
    )
    fields: dict[str, str] = Field(
        default={}, description="kept with each item, for figures that are computed from items"
    )
    chance: float | None = Field(
        default=None, ge=0, le=1, description="accuracy of a guess; default: right choices / choices"
    )
    bias: bool = Field(
        default=False,
        description="it shows a bias, not a skill: it counts neither in CORE's mean nor in calibration; always so with pct_stereotype"
        " or likelihood_diff",
    )
    licence: str = Field(default="", description="of the data")
    citation: str = Field(default="", description="where it comes from")

    @property
    def about_bias(self) -> bool:
        """Whether it shows a bias, not a skill."""
        return self.bias or self.wants("pct_stereotype") or self.wants("likelihood_diff")

    @property
    def metrics(self) -> list[Metric]:
        """The metrics asked for, or those of the output type."""
        return self.metric_list or [Metric(metric=name) for name in DEFAULT_METRICS[self.output_type]]

    def wants(self, metric: str) -> bool:
        return any(one.metric == metric for one in self.metrics)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        kind = self.output_type
        if (self.doc_to_choice is None) == (kind in CHOICE):
            needs = "needs" if kind in CHOICE else "has no"
            raise ValueError(f"output_type {kind} {needs} doc_to_choice")
        for key in ("doc_to_text", "doc_to_target"):
            needed = kind == "schema" or key == "doc_to_target"
            if needed and getattr(self, key) == "":
                raise ValueError(f"{key}: missing; output_type {kind} needs it")
        if kind not in CHOICE and not isinstance(self.doc_to_target, str):
            raise ValueError(f"doc_to_target: of output_type {kind} it is a text")
        wrong = [one.metric for one in self.metrics if kind not in METRICS[one.metric][0]]
        if wrong:
            allowed = ", ".join(name for name, (kinds, _) in METRICS.items() if kind in kinds)
            raise ValueError(
                f"metric_list: {wrong[0]} is not defined for output_type {kind} (allowed: {allowed})"
            )
        if kind == "loglikelihood_rolling" and self.num_fewshot:
            raise ValueError("num_fewshot: output_type loglikelihood_rolling has no examples")
        names = [one.name for one in self.filter_list]
        if names and kind != "generate_until":
            raise ValueError("filter_list: only of output_type generate_until")
        if len(set(names)) < len(names):
            raise ValueError("filter_list: names must differ")
        return self


class TaskData(Strict):
    """`<task>.source.json` beside rows that `corpusmill task-data` fetched."""

    task: str
    file: str = Field(description="its name")
    source: str = Field(description="the data set at the commit that was read")
    files: list[str] = Field(description="its files that were read, in order")
    rows: int
    bytes: int
    sha256: str = Field(description="of the file")
    licence: str
    citation: str
