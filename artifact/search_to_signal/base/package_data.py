"""Where the files lie that are no part of the package: profiles, models, recipe, published tables, the lock.

In a checkout they stand beside the package and at the root of the repository; in an installed wheel below
``_data``, where pyproject.toml puts them. Templates lie in the package that fills them.
"""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment

PACKAGE = Path(__file__).resolve().parents[1]
_DATA = PACKAGE / "_data"
INSTALLED = _DATA.is_dir()
"""Whether this is a wheel, of which there is no checkout."""

_ARTIFACT, _ROOT = (_DATA, _DATA) if INSTALLED else (PACKAGE.parent, PACKAGE.parents[1])
PROFILES = _ARTIFACT / "profiles"
MODELS = _ARTIFACT / "models"
# Where a model is from, and which version of a library converted its weights: beside these.
SOURCE = "source.json"
TRAINING = _ARTIFACT / "recipe"
PUBLISHED = _ARTIFACT / "published"
EVIDENCE = _ARTIFACT / "evidence"
PIN = _ARTIFACT / "calm" / "pin.toml"
LOCK = _ROOT / "uv.lock"
PYPROJECT = _ROOT / "pyproject.toml"


def source_files() -> dict[str, Path]:
    """The files that decide a result, by their path in the repository, sorted; a wheel has the same ones."""
    package = {f"artifact/search_to_signal/{path.relative_to(PACKAGE)}": path for path in PACKAGE.rglob("*")}
    profiles = {f"artifact/profiles/{path.name}": path for path in PROFILES.glob("*.toml")}
    files = {**package, **profiles, PYPROJECT.name: PYPROJECT, LOCK.name: LOCK}
    return {
        name: files[name]
        for name in sorted(files, key=lambda name: name.split("/"))
        if files[name].is_file() and not {"__pycache__", _DATA.name} & set(name.split("/"))
    }


def render(package: str, template: str, **values: Any) -> str:
    """A page from a template of a package, such as ``search_to_signal.audit``; what is put in is escaped.

    A name that the template asks for and nobody gives is an error.
    """
    return _environment(package).get_template(template).render(**values)


@cache
def _environment(package: str) -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader(package)
    return Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
