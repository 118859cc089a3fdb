"""Every number that somebody may set has a range, and nothing outside it starts a run."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
import pytest
from tests.profiles import profile_head

from search_to_signal.base.errors import ConfigError
from search_to_signal.base.package_data import PROFILES
from search_to_signal.base.settings import Range, check_ranges
from search_to_signal.learner.settings import LearnerSettings
from search_to_signal.models.settings import ServerSettings
from search_to_signal.run.config import RunConfig
from search_to_signal.run.profile import Profile, load_profile


def parts(hint: Any) -> Iterator[Any]:
    """A type and every type inside it."""
    yield hint
    for part in get_args(hint):
        yield from parts(part)


def structs(kind: type) -> set[type]:
    """A struct and every struct that its fields hold."""
    found = {kind}
    for hint in get_type_hints(kind).values():
        for part in parts(hint):
            if isinstance(part, type) and issubclass(part, msgspec.Struct) and part not in found:
                found |= structs(part)
    return found


def numbers() -> dict[tuple[type, str], Any]:
    """Every numeric field of everything that a profile or a run is made of, with its annotation."""
    found = {}
    for kind in structs(Profile) | structs(RunConfig):
        for name, hint in get_type_hints(kind, include_extras=True).items():
            if {int, float} & {part for part in parts(hint) if isinstance(part, type)}:
                found[kind, name] = hint
    return found


def test_every_number_has_a_range() -> None:
    """A numeric setting without one is named; the nets below are cast over all of them."""
    found = numbers()
    assert {(LearnerSettings, "kl"), (Profile, "seeds")} <= set(found)
    bare = [
        f"{kind.__name__}.{name}"
        for (kind, name), hint in found.items()
        if get_origin(hint) is not Annotated or not isinstance(hint.__metadata__[0], Range)
    ]
    assert bare == []


@pytest.mark.parametrize(
    ("kind", "name"), sorted(numbers(), key=str), ids=lambda part: getattr(part, "__name__", part)
)
def test_every_range_is_kept(kind: type, name: str) -> None:
    """A number under the range, over it, or none at all is refused by name wherever a profile holds it."""
    hint = numbers()[kind, name]
    allowed: Range = hint.__metadata__[0]
    several = any(get_origin(part) is tuple for part in parts(hint))
    paper = load_profile("paper")
    by_server = msgspec.structs.replace(paper.generation, server=ServerSettings())
    profile = msgspec.structs.replace(paper, generation=by_server)
    holder = profile.runs()[0] if kind is RunConfig else profile
    wrong = [allowed.low if allowed.above else allowed.low - 1, -math.inf, math.nan, math.inf]
    for value in (*wrong, *([allowed.high * 2] if math.isfinite(allowed.high) else [])):
        with pytest.raises(ConfigError, match=rf"{name} is "):
            changed(holder, kind, name, (value,) if several else value)


def changed(holder: Any, kind: type, name: str, value: Any) -> Any:
    """The holder made anew, with one number changed in the first part of a kind."""
    if isinstance(holder, kind):
        return type(holder)(**{**msgspec.structs.asdict(holder), name: value})
    for field, part in msgspec.structs.asdict(holder).items():
        inner = part[0] if isinstance(part, tuple) and part else part
        if isinstance(inner, msgspec.Struct) and kind in structs(type(inner)):
            new = changed(inner, kind, name, value)
            fields = msgspec.structs.asdict(holder) | {field: (new,) if isinstance(part, tuple) else new}
            return type(holder)(**fields)
    raise AssertionError(f"the paper's profile has no {kind.__name__}")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("[learner]\nmax_grad_norm = -1", r"learner\.max_grad_norm is -1.*: give a number from 0"),
        ("[learner]\nlearning_rate = -1.0", r"learner\.learning_rate is -1\.0: give a number from 0 to 10"),
        ("[learner]\nkl = nan", r"learner\.kl is nan"),
        ("[learner]\nmax_grad_norm = inf", r"learner\.max_grad_norm is inf"),
        ("[heldout]\ninstances = -5", r"heldout\.instances is -5"),
        ("[evaluation]\nslots = 100000", r"evaluation\.slots is 100000"),
        ('[heldout]\nbehaviour_split = "exam"', r"heldout\.behaviour_split.*'exam'"),
        ('[updates]\nmappings = ["nativ"]', r"'nativ'.*factorized"),
        ('[updates]\nnormalizers = ["grup"]', r"'grup'.*group"),
        (
            '[[breadth]]\nproblem = "tsp"\nsplit = "embedded"\nmodel = "x"\nconditions = ["native"]\n'
            "seeds = [-1]\ngroups = 3",
            r"breadth\[0\]\.seeds is -1",
        ),
    ],
)
def test_a_profile_is_refused_when_it_is_read(tmp_path: Path, lines: str, said: str) -> None:
    """What used to fail in a run's log, or to run, is named with file, key and what would do."""
    path = tmp_path / "mine.toml"
    path.write_text(f"{profile_head('frozen', groups=2)}{lines}\n")
    with pytest.raises(ConfigError, match=rf"mine\.toml: .*{said}"):
        load_profile(str(path))


def test_a_step_may_go_unclipped() -> None:
    """Matched updates take plain descent with no bound on the gradient: a construction, not a profile."""
    assert LearnerSettings(max_grad_norm=math.inf, learning_rate=1.0).max_grad_norm == math.inf


@pytest.mark.parametrize(
    ("allowed", "inside", "outside"),
    [
        (Range(0, 1), (0, 0.5, 1), (-0.1, 1.1, math.nan, math.inf)),
        (Range(0, 1, above=True), (1e-9, 1), (0, math.nan)),
        (Range(0, 1, below=True), (0, 0.99), (1, math.nan)),
    ],
)
def test_ranges_hold_their_ends_as_said(
    allowed: Range, inside: tuple[float, ...], outside: tuple[float, ...]
) -> None:
    """Either end may be left out; what is no number is outside."""
    assert all(allowed.holds(value) for value in inside)
    assert not any(allowed.holds(value) for value in outside)


def test_shipped_profiles_are_in_range() -> None:
    for path in PROFILES.glob("*.toml"):
        check_ranges(load_profile(path.stem))
