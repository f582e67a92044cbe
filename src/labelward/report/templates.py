"""The templates of all pages: one environment, with the common style sheet and everything escaped but that.

And how a page is written.
"""

from __future__ import annotations

import base64
import hashlib
from importlib import resources
from pathlib import Path
from typing import Any

from labelward.installation import missing_library
from labelward.runs.secure_files import write_bytes


def render(template: str, **content: Any) -> str:
    """Return a page.

    Args:
        template: name of a file in this package, with ``/`` before that of a package within.
        content: what the template shows, escaped unless it is markup; always there are ``css``, ``script`` with its
            digest, by which alone the page's policy admits it, and ``svg``, which marks a picture as markup.

    Raises:
        DependencyError: Jinja is not installed.
    """
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError as error:
        raise missing_library("the page", "jinja2", "report") from error
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FunctionLoader(_text),
    )
    script = _text("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template(template).render(
        css=Markup(_text("page.css")),
        script=Markup(script),
        script_digest=Markup(f"sha256-{digest}"),
        svg=Markup,
        **content,
    )


def write_page(path: Path, page: str) -> Path:
    """Write a page, in place of one that is there, and return its path.

    Raises:
        OutputError: it cannot be written.
    """
    write_bytes(path, page.encode())
    return path


def _text(name: str) -> str:
    return resources.files("labelward.report").joinpath(name).read_text(encoding="utf-8")
