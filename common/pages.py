"""HTML pages in one look: the templates' environment and the style sheet, which pages of the pipeline and the trainer share."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import (
    BaseLoader,
    ChoiceLoader,
    Environment,
    ModuleLoader,
    PackageLoader,
    StrictUndefined,
    Template,
)

from corpusmill.common import escape
from corpusmill.common.charts import bar
from corpusmill.common.format import number, share, short, size
from corpusmill.common.kernel_keys import cache_folder, digest, keep


def environment(*packages: str) -> Environment:
    """Of the templates of packages, the first of them that has one, and of `style.css.j2`. Autoescape is on, whatever a template
    is called; a name that a template is not given raises `jinja2.UndefinedError`."""
    templates = ChoiceLoader([PackageLoader(name, "templates") for name in (*packages, "corpusmill.common")])
    jinja = Environment(
        loader=_Compiled(templates),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    jinja.filters.update(
        n=number, short=short, size=size, visible=escape.visible, wbr=escape.breakable, token=escape.token
    )
    jinja.globals.update(share=share, bar=bar)
    return jinja


class _Compiled(BaseLoader):
    """Another loader's templates as modules of Python, kept beside the compiled kernels: to translate those of a report takes
    longer than to fill them in."""

    def __init__(self, templates: BaseLoader) -> None:
        self._templates = templates
        # Constants that go through a filter are part of a module.
        key = f"{digest(__name__, Path(__file__))[:16]}-jinja-{jinja2.__version__}"
        self._folder = cache_folder() / f"templates-{key}"

    def get_source(self, environment: Environment, template: str) -> Any:
        return self._templates.get_source(environment, template)

    def load(self, environment: Environment, name: str, globals: Any = None) -> Template:
        source, file, _ = self.get_source(environment, name)
        folder = self._folder / hashlib.sha256(source.encode()).hexdigest()[:16]
        module = folder / ModuleLoader.get_module_filename(name)
        if not module.is_file():
            keep(module, environment.compile(source, name, file, True, True).encode())
        if not module.is_file():  # it cannot be written
            return self._templates.load(environment, name, globals)
        return ModuleLoader(folder).load(environment, name, globals)
