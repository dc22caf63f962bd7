"""One HTML file from a template: style, scripts and data stand in it, and it may load nothing else.

Values are escaped by the template engine; what does not print is shown as an escape. Styles and scripts come
from files of this package and its callers only, and a Content-Security-Policy names them by their hashes, so
that markup in a value that ever got through would neither run nor load anything.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compiler import visible
from toolchain.console import jsonable

if TYPE_CHECKING:
    import jinja2

PAGES = Path(__file__).parent
TABLE_SCRIPT = PAGES / "table.js"
"""Makes tables with `data-sortable` sortable, and filters them by what stands in `data-filters`."""
_KEPT = "\n\t"


@dataclass(frozen=True, slots=True)
class Page:
    """What a page is made of.

    template: extends `page.html.j2` and gets `values`. styles: CSS behind that of all pages. data: JSON for
    the scripts, by the id of the element that holds it.
    """

    template: Path
    title: str
    values: Mapping[str, object]
    styles: Sequence[str] = ()
    scripts: Sequence[Path] = ()
    data: Mapping[str, object] = field(default_factory=dict)


def render_page(page: Page) -> str:
    """The page as one HTML document; the same bytes for the same page."""
    from markupsafe import Markup

    style = "\n".join([_text(PAGES / "base.css"), *page.styles])
    scripts = [_text(path) for path in page.scripts]
    template = _environment(page.template.parent).get_template(page.template.name)
    return template.render(
        page.values,
        title=page.title,
        policy=content_security_policy([style], scripts),
        style=Markup(style),  # noqa: S704 - a file of ours
        scripts=[Markup(one) for one in scripts],  # noqa: S704 - files of ours
        data={name: Markup(embedded_json(value)) for name, value in page.data.items()},  # noqa: S704 - escaped
    )


def content_security_policy(styles: Sequence[str], scripts: Sequence[str]) -> str:
    """The policy that allows these texts, images in the page itself, and nothing else."""
    return "; ".join(
        [
            "default-src 'none'",
            " ".join(["style-src", *map(_hash_source, styles)]) if styles else "style-src 'none'",
            " ".join(["script-src", *map(_hash_source, scripts)]) if scripts else "script-src 'none'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


def embedded_json(value: object) -> str:
    """JSON that can stand in a `script` element: nothing in it ends the element or begins a comment.

    NaN and infinities become text; in texts, what does not print becomes an escape that is shown.
    """
    text = json.dumps(visible_texts(jsonable(value)), ensure_ascii=True, allow_nan=False, sort_keys=True)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def visible_texts(value: Any) -> Any:
    """JSON's values with an escape that is shown for what does not print in their texts."""
    if isinstance(value, str):
        return visible(value, keep=_KEPT)
    if isinstance(value, dict):
        return {visible(key): visible_texts(one) for key, one in value.items()}
    return [visible_texts(one) for one in value] if isinstance(value, list) else value


def _hash_source(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
    return f"'sha256-{digest}'"


@functools.cache
def _environment(folder: Path) -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader([folder, PAGES]),
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _shown(value: object) -> object:
    """What a template puts into the page: texts visible, markup of ours as it is."""
    return visible(value, keep=_KEPT) if isinstance(value, str) and not hasattr(value, "__html__") else value


@functools.cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")
