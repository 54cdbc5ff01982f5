"""Templates are translated once for a machine, and again when they change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jinja2 import DictLoader, Environment

from corpusmill.common.pages import _Compiled, environment

TEMPLATES = {
    "page.html.j2": "{% import 'macros.html.j2' as m %}{{ m.bold(text) }}",
    "macros.html.j2": "{% macro bold(x) %}<b>{{ x }}</b>{% endmacro %}",
}


def page(**changed: str) -> str:
    jinja = Environment(loader=_Compiled(DictLoader({**TEMPLATES, **changed})), autoescape=True)
    return jinja.get_template("page.html.j2").render(text="a < b")


def test_templates_are_translated_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CORPUSMILL_KERNEL_CACHE", str(tmp_path))
    assert page() == "<b>a &lt; b</b>"
    macros = {"macros.html.j2": TEMPLATES["macros.html.j2"].replace("b>", "i>")}
    assert page(**macros) == "<i>a &lt; b</i>"

    def translated(*_: Any, **__: Any) -> Any:
        raise AssertionError("translated again")

    monkeypatch.setattr(Environment, "compile", translated)
    assert page() == "<b>a &lt; b</b>" and page(**macros) == "<i>a &lt; b</i>"


def test_where_nothing_can_be_kept_they_are_translated_each_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "cache").write_text("in the way")
    monkeypatch.setenv("CORPUSMILL_KERNEL_CACHE", str(tmp_path / "cache"))
    assert page() == "<b>a &lt; b</b>"


def test_the_style_sheet_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CORPUSMILL_KERNEL_CACHE", str(tmp_path))
    first = environment("corpusmill.pipeline.report").get_template("style.css.j2").render()
    assert first and environment().get_template("style.css.j2").render() == first
