"""A room's templates as text; a name that a template asks for and nobody gives is an error."""

from typing import Any


def render(room: str, template: str, **values: Any) -> str:
    """A page from a template of a package, such as ``search_to_signal.audit``; what is put in is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader(room)
    environment = Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
    return environment.get_template(template).render(**values)
