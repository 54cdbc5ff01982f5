"""Blind ratings of pairs of texts (`corpusmill judge`): a line of the file of ratings, what is computed from such files, and the
preferences that they give for tuning."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from corpusmill.schemas.evaluation import Estimate
from corpusmill.schemas.generation import Sampling
from corpusmill.schemas.manifest import Strict

Side = Literal["a", "b"]
Version = tuple[str, str | None]  # of a model: its name and the hash of its weights
Choice = Literal["a", "b", "tie", "both_bad"]


class Judgement(Strict):
    """One rating; a later one of the same rater on the same texts of the same two models replaces it."""

    pair: str = Field(description="hash of the prompt and the two texts, whichever is `a`")
    prompt: str
    a: str = Field(description="name of the model whose text `text_a` is")
    b: str
    text_a: str
    text_b: str
    left: Side = Field(description="whose text stood on the left")
    choice: Choice
    rater: str
    time: str = Field(description="ISO 8601, UTC")
    seconds: float = Field(ge=0, description="for which the rater had the pair before them")
    sampling: Sampling | None = Field(default=None, description="of both texts; null for texts from files")
    weights_a: str | None = Field(default=None, description="hash of the weights; null for texts from files")
    weights_b: str | None = None

    @property
    def models(self) -> frozenset[Version]:
        """The two models, whichever is `a`."""
        return frozenset({(self.a, self.weights_a), (self.b, self.weights_b)})


class JudgedText(Strict):
    """A text that a run wrote for raters; a line of the file of texts beside the file of ratings."""

    model: str = Field(description="the run, as it was named")
    weights: str = Field(description="hash of its weights")
    sampling: Sampling
    prompt: str
    text: str


class Preference(Strict):
    """Of a pair on which more raters prefer one text than the other: a line of `--preferences`."""

    prompt: str
    chosen: str
    rejected: str


class Comparison(Strict):
    """Two models, over all their ratings."""

    a: str
    b: str
    ratings: int
    wins_a: int
    wins_b: int
    ties: int
    both_bad: int
    win_rate: Estimate = Field(
        description="of `a`: share of ratings in its favour, ties and both bad as half; Agresti-Min interval, clustered by prompt"
    )


class Agreement(Strict):
    """Of raters on which of two texts is the better one, over pairs of texts that two or more of them rated."""

    raters: int
    pairs: int
    alpha: Estimate | None = Field(
        description="Krippendorff's alpha for nominal data, bootstrap over pairs; null if all chose the same or no pair has two"
        " ratings"
    )


class JudgeReport(Strict):
    """What `corpusmill judge --report` finds."""

    ratings: int
    pairs: int = Field(description="pairs of texts, of each two models")
    raters: dict[str, int] = Field(description="rater -> ratings")
    replaced: int = Field(description="ratings that their rater changed later; not counted elsewhere")
    comparisons: list[Comparison]
    scores: dict[str, Estimate] = Field(
        description="Bradley-Terry, log-odds with mean 0, ties as half a win each; bootstrap over prompts"
    )
    groups: list[list[str]] = Field(
        description="models that ratings compare, directly or by way of others; of several groups there are no scores"
    )
    agreement: Agreement
    left: Estimate | None = Field(
        description="share of choices for the left text, of those for one side; 0.5 without a position bias"
    )
    findings: list[str]
