"""The page of the server, to try a model: one HTML file with its own style and script, which asks this server alone."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from corpusmill.train.log.dashboard import ASSETS as DASHBOARD

ASSETS = Path(__file__).parent / "assets"


def render(name: str, step: int, context: int, template: bool) -> tuple[str, str]:
    """The page, and the policy (Content-Security-Policy) under which it is to be sent; `template`: whether the model has one for
    conversations."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    script = (ASSETS / "page.js").read_text(encoding="utf-8")
    # The look of the dashboard, and what only this page has.
    style = "".join((folder / "page.css").read_text(encoding="utf-8") for folder in (DASHBOARD, ASSETS))
    jinja = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    page = jinja.from_string((ASSETS / "page.html.j2").read_text(encoding="utf-8")).render(
        name=name, step=f"{step:,}", context=f"{context:,}", template=template, style=Markup(style),
        script=Markup(script),
    )  # fmt: skip
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; script-src 'sha256-{digest}';"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return page, policy
