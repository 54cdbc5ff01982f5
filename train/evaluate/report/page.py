"""`evaluation.html`, one file that loads nothing and runs no script, and the model card, in Markdown."""

from __future__ import annotations

import math
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from corpusmill.common import escape
from corpusmill.common.charts import element
from corpusmill.common.format import head
from corpusmill.common.pages import environment
from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.evaluate.report.facts import Facts, gather
from corpusmill.train.evaluate.resampling import FEW

PAGE, CARD = "evaluation.html", "MODEL_CARD.md"
NAME = 48  # characters of a task's name, or of a slice's value in the card
LONG = 1200  # characters of a prompt; its end is shown, where the question is
NGRAMS = {"trained_on": "of the tokens seen", "all": "of all tokens"}


def write(config: TrainConfig, run: Folder) -> list[str]:
    """Write both into the run's folder; their URLs. Raises `UserError` if the run has not been evaluated."""
    facts = gather(config, run)
    written = {PAGE: render(facts), CARD: card(facts)}
    for name, text in written.items():
        (run / name).write(text.encode("utf-8"))
    return [(run / name).url for name in written]


def render(facts: Facts) -> str:
    """The page. Equal figures give equal bytes."""
    page = (
        _environment().get_template("evaluation.html.j2").render(f=facts, shown=facts["tasks"], ngrams=NGRAMS)
    )
    return page if page.endswith("\n") else page + "\n"


def card(facts: Facts) -> str:
    """The model card: YAML front matter as the Hugging Face Hub reads it (`model-index`), then text by the headings of its card
    template. It quotes no item and no document; of a task's data it has the values of slices on which the model does worse, as a
    subject, the first characters of each."""
    jinja = _environment().overlay(autoescape=False)
    jinja.filters.update(md=escape.markdown, code=escape.code)
    return jinja.get_template("model_card.md.j2").render(f=facts, front=front_matter(facts)).strip() + "\n"


def front_matter(facts: Facts) -> str:
    from io import StringIO

    from ruamel.yaml import YAML

    results = [
        {
            "task": {"type": "text-generation"},
            "dataset": {"name": task["result"]["task"], "type": task["result"]["task"]},
            "metrics": [
                {"type": name, "value": round(one["value"], 6), "name": name}
                for name, one in task["result"]["metrics"].items()
            ],
        }
        for task in facts["tasks"]
        if task["result"]["metrics"]
    ]
    front: Facts = {"library_name": "transformers", "pipeline_tag": "text-generation", "tags": ["corpusmill"]}
    if results:
        front["model-index"] = [{"name": facts["name"], "results": results}]
    yaml = YAML()
    yaml.default_flow_style, yaml.width = False, 4096
    out = StringIO()
    yaml.dump(front, out)
    return out.getvalue()


def _environment() -> Environment:
    jinja = environment("corpusmill.train.evaluate.report")
    jinja.filters.update(figure=figure, end=end, interval=interval, clip=beginning)
    jinja.globals.update(whisker=whisker, few=FEW)
    return jinja


def beginning(text: str) -> str:
    """The beginning of a name or of a slice's value."""
    return head(text, NAME)


def figure(value: float | None) -> str:
    """A metric or a loss: four digits behind the point below 10, else one."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:.4f}" if abs(value) < 10 else f"{value:,.1f}"


def interval(estimate: dict[str, Any]) -> str:
    """`0.3120 ± 0.0150`, or both ends where the interval is not symmetric; what has no interval says why."""
    low, high, value = estimate["low"], estimate["high"], estimate["value"]
    if low is None or high is None:
        return f"{figure(value)} ({FEW})"
    if abs((high - value) - (value - low)) < 1e-3 * max(abs(value), 1e-3):
        return f"{figure(value)} ± {figure((high - low) / 2)}"
    return f"{figure(value)} ({figure(low)} to {figure(high)})"


def end(text: str) -> str:
    """The end of a long prompt."""
    return text if len(text) <= LONG else f"… {text[-LONG:]}"


def whisker(estimate: dict[str, Any], chance: float | None) -> Markup:
    """A share between 0 and 1 as a bar with its interval, and the chance level as a mark; nothing for other figures."""
    low, high, value = estimate["low"], estimate["high"], estimate["value"]
    if low is None or high is None or not 0 <= low <= high <= 1:
        return Markup("")
    label = f"{figure(value)}, 95 % interval {figure(low)} to {figure(high)}"
    parts = [
        element("title", label),
        element("rect", x=100 * low, y=2, width=max(100 * (high - low), 0.4), height=6, class_="c-all"),
        element("rect", x=100 * value - 0.6, y=0, width=1.2, height=10, class_="c-kept"),
    ]
    if chance is not None:
        parts.append(element("rect", x=100 * chance - 0.3, y=0, width=0.6, height=10, class_="f-removed"))
    return element(
        "svg",
        *parts,
        class_="bar",
        viewBox="0 0 100 10",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
    )
