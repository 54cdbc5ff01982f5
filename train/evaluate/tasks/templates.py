"""Jinja2 templates of a row's columns, as lm-evaluation-harness renders them, in a sandbox."""

from __future__ import annotations

import ast
import re
from typing import Any

from jinja2 import StrictUndefined, TemplateError, TemplateSyntaxError
from jinja2.sandbox import SandboxedEnvironment

from corpusmill.common.errors import UserError

SHOWN = 160  # characters of a reason


class Damaged(Exception):
    """Why a row gives no item; equal for rows with the same fault, so that it can be counted."""


def regex_replace(text: str, pattern: str, replacement: str, count: int = 0) -> str:
    """The filter of this name of lm-evaluation-harness: `re.sub`."""
    return re.sub(pattern, replacement, text, count=count)


class Templates:
    """Of one task; each is compiled once. `where` names the task's file or name in errors."""

    def __init__(self, where: str) -> None:
        self.where = where
        self._environment = SandboxedEnvironment(undefined=StrictUndefined, keep_trailing_newline=True)
        self._environment.filters["regex_replace"] = regex_replace
        self._compiled: dict[str, Any] = {}

    def compile(self, key: str, template: str) -> Any:
        """Raises `UserError` naming the key of a template that is none."""
        if template not in self._compiled:
            try:
                self._compiled[template] = self._environment.from_string(template)
            except TemplateSyntaxError as error:
                raise UserError(
                    f"{self.where}: {key}: not a Jinja2 template: line {error.lineno}: {error.message}"
                ) from None
        return self._compiled[template]

    def text(self, key: str, template: str, columns: dict[str, Any]) -> str:
        """The template filled in. Raises `Damaged` where the row does not fit it."""
        try:
            found = str(self.compile(key, template).render(columns))
            found.encode()
        except (
            TemplateError,
            ArithmeticError,
            AttributeError,
            LookupError,
            TypeError,
            ValueError,
            re.error,
        ) as error:
            raise Damaged(f"{key}: {str(error)[:SHOWN] or type(error).__name__}") from None
        return found

    def value(self, key: str, template: str, columns: dict[str, Any]) -> Any:
        """The column of this name as it is, or the template filled in; what reads as a list or mapping is one."""
        if template and template in columns:
            return columns[template]
        return literal(self.text(key, template, columns))

    def label(self, key: str, template: str, columns: dict[str, Any]) -> str:
        """The column of this name, or the template filled in, as text."""
        if template and template in columns:
            return str(columns[template])
        return self.text(key, template, columns)

    def column(self, key: str, template: str, columns: dict[str, Any]) -> Any:
        """As `value`, for keys in which a plain word can only be the name of a column."""
        if template not in columns and "{" not in template:
            raise Damaged(f"{key}: there is no column '{template}'")
        return self.value(key, template, columns)


def literal(text: str) -> Any:
    """A text that reads as a list or a mapping as that, any other as it is."""
    if len(text) >= 2 and text[0] + text[-1] in ("[]", "{}"):
        try:
            return ast.literal_eval(text)
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            return text
    return text
