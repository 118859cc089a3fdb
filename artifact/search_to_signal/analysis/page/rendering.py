"""Templates of this room as text; a name that a template asks for and nobody gives is an error."""

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined


def rendered(template: str, **values: Any) -> str:
    """A page from its template; what is put in is escaped."""
    loader = PackageLoader("search_to_signal.analysis.page")
    environment = Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
    return environment.get_template(template).render(**values)
