"""Fills the Jinja templates in `templates/`."""

from pathlib import Path

import jinja2

TEMPLATES = Path(__file__).parent / "templates"


def filled(template: str, **values: object) -> str:
    """A template's text with these values, escaped in HTML and XML."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=jinja2.select_autoescape(["html.j2", "xml.j2"]),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template(template).render(**values)
