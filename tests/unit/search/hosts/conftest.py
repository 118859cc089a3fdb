"""A stand-in for the released host: the interface that is known of it, in words of our own."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.copies import copy_to_change

STANDIN = Path(__file__).parents[3] / "standin"
PACKAGES = Path(__file__).parent / "packages"


@pytest.fixture
def standin() -> Path:
    return STANDIN


@pytest.fixture
def calm(tmp_path: Path) -> Path:
    """A copy of the stand-in whose bin packing instances are those of our small split."""
    copy = copy_to_change(STANDIN, tmp_path / "calm")
    recipe = copy / "problems" / "obp.py"
    text = recipe.read_text().replace("seed(1234)", "seed(2027)").replace("(100, 500)", "(100,)")
    recipe.write_text(text.replace("[sizes(5000), sizes(1000)]", "np.split(sizes(400), 2)"))
    return copy


@pytest.fixture
def answering(calm: Path) -> Path:
    """That copy with answers to give: three groups, and one of odd ones."""
    from answering_host import some_answers, with_answers

    return with_answers(calm, some_answers())


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Where a run goes; nothing is there yet, nor where it lies."""
    return tmp_path / "results" / "run"


@pytest.fixture
def sabotaged(calm: Path) -> Callable[[str, str, str], Path]:
    """A copy of the stand-in with one text replaced in one file."""

    def sabotage(file: str, old: str, new: str) -> Path:
        path = calm / file
        text = path.read_text(encoding="utf-8")
        assert text.count(old) >= 1
        path.write_text(text.replace(old, new), encoding="utf-8")
        return calm

    return sabotage


@pytest.fixture
def gpu_packages(monkeypatch: pytest.MonkeyPatch) -> Path:
    """Fakes of the packages that a run of the released host needs, importable here and in child processes."""
    monkeypatch.syspath_prepend(PACKAGES)
    monkeypatch.setenv("PYTHONPATH", str(PACKAGES))
    return PACKAGES


@pytest.fixture(autouse=True)
def hub_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in has a model of the hub, which the image would refuse offline; nothing is downloaded."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
