"""The templates of all pages: one environment, with the common style sheet and everything escaped but that."""

from __future__ import annotations

from importlib import resources
from typing import Any

from labelward.errors import DependencyError


def render(template: str, **content: Any) -> str:
    """Return a page.

    Args:
        template: name of a file in this package, with ``/`` before that of a package within.
        content: what the template shows, escaped unless it is markup; ``css`` and ``svg``, which marks a picture as
            markup, are always there.

    Raises:
        DependencyError: Jinja is not installed.
    """
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError as error:
        raise DependencyError(
            "a page needs Jinja: pip install 'labelward[report]'", code="dependency", value="jinja2"
        ) from error
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FunctionLoader(_text),
    )
    return environment.get_template(template).render(css=Markup(_text("page.css")), svg=Markup, **content)


def _text(name: str) -> str:
    return resources.files("labelward.report").joinpath(name).read_text(encoding="utf-8")
