"""Where the files of the package lie that are no code: profiles, models, published tables, the lock.

In a checkout they stand beside the package and at the root of the repository; in an installed wheel below
``_data``, where pyproject.toml puts them.
"""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
_DATA = PACKAGE / "_data"
INSTALLED = _DATA.is_dir()
"""Whether this is a wheel, of which there is no checkout."""

_ARTIFACT, _ROOT = (_DATA, _DATA) if INSTALLED else (PACKAGE.parent, PACKAGE.parents[1])
PROFILES = _ARTIFACT / "profiles"
MODELS = _ARTIFACT / "models"
PUBLISHED = _ARTIFACT / "published"
EVIDENCE = _ARTIFACT / "evidence"
PIN = _ARTIFACT / "calm" / "pin.toml"
LOCK = _ROOT / "uv.lock"
PYPROJECT = _ROOT / "pyproject.toml"


def source_files() -> dict[str, Path]:
    """The files that decide a result, by their path in the repository, sorted; a wheel has the same ones."""
    package = {f"artifact/search_to_signal/{path.relative_to(PACKAGE)}": path for path in PACKAGE.rglob("*")}
    profiles = {f"artifact/profiles/{path.name}": path for path in PROFILES.glob("*.toml")}
    found = {**package, **profiles, PYPROJECT.name: PYPROJECT, LOCK.name: LOCK}
    return {
        name: found[name]
        for name in sorted(found, key=lambda name: name.split("/"))
        if found[name].is_file() and not {"__pycache__", _DATA.name} & set(name.split("/"))
    }
