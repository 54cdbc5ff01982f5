"""HTML pages in one look: the templates' environment and the style sheet, which pages of the pipeline and the trainer share."""

from __future__ import annotations

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from corpusmill.common import escape
from corpusmill.common.charts import bar
from corpusmill.common.format import number, share, short, size


def environment(*packages: str) -> Environment:
    """Of the templates of packages, the first of them that has one, and of `style.css.j2`. Autoescape is on, whatever a template
    is called; a name that a template is not given raises `jinja2.UndefinedError`."""
    jinja = Environment(
        loader=ChoiceLoader([PackageLoader(name, "templates") for name in (*packages, "corpusmill.common")]),
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    jinja.filters.update(
        n=number, short=short, size=size, visible=escape.visible, wbr=escape.breakable, token=escape.token
    )
    jinja.globals.update(share=share, bar=bar)
    return jinja
