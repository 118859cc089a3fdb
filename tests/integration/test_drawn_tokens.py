"""``s2s verify --draws``: honest runs pass, forged tokens, models, temperatures and seeds are named."""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from safetensors.torch import load_file, save_file
from tests.cohorts import run_cohort
from tests.forging import configure, edit_line, edit_manifest, reseal

from search_to_signal.base.package_data import MODELS
from search_to_signal.base.progress import PlainProgress
from search_to_signal.cli import main
from search_to_signal.learner.adapter import TENSORS
from search_to_signal.models import sampling
from search_to_signal.models.files import checked_files
from search_to_signal.models.settings import ModelSettings
from search_to_signal.records.manifest import read_manifest
from search_to_signal.run.config import ADAPTER
from search_to_signal.run.profile import Profile
from search_to_signal.verify import DRAWS, promise
from search_to_signal.verify.token_draws import RunDraws, TokenDrawOptions, check_draws

Said = tuple[int, str, str]


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> Said:
    """Exit code, output and errors of ``s2s verify``."""
    code = main(["verify", *(str(argument) for argument in arguments)])
    told = capsys.readouterr()
    return code, told.out, told.err


@pytest.fixture
def copied(cohort: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    return Path(shutil.copytree(cohort, tmp_path / "tiny"))


def test_honest_runs_pass_to_the_last_token_and_adapter(
    cohort: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every token is drawn again, every adapter made again, and the promise of the level is printed."""
    code, out, _ = said(capsys, cohort, "--draws")
    assert (code, promise(DRAWS) in out) == (0, True)
    assert "frozen-s42: 2 groups, " in out
    assert "all are what the random numbers draw; 2 of 2 adapters made again have the recorded bits" in out
    assert "draws: 4 groups of 2 runs, " in out
    assert "NOT CHECKED" not in out


def token(run: Path) -> None:
    """One token of a completion becomes another."""

    def change(line: dict[str, list[list[int]]]) -> None:
        ids = line["completion_ids"][2]
        ids[20] = (ids[20] + 1) % 500

    edit_line(run / "generations.jsonl", 1, change)


def model(run: Path) -> None:
    """The texts are said to be another model's."""
    configure(run, model="llama-2.1m")
    files = checked_files(MODELS / "llama-2.1m")
    edit_manifest(run, lambda manifest: manifest.update(model_files=files))


def temperature(run: Path) -> None:
    """The texts are said to be sampled at 1.2."""
    configure(run, generation={**read_manifest(run).config["generation"], "temperature": 1.2})


def no_temperature(run: Path) -> None:
    """A temperature at which logits overflow, so that no token has a share."""
    configure(run, generation={**read_manifest(run).config["generation"], "temperature": 1e-40})


def seed(run: Path) -> None:
    """The texts are said to be another seed's."""
    configure(run, seed=43)


def cut(run: Path) -> None:
    """A completion loses its end token to another."""
    edit_line(run / "generations.jsonl", 1, lambda line: line["completion_ids"][2].__setitem__(-1, 50))


def unknown(run: Path) -> None:
    """A token that the model does not have."""
    edit_line(run / "generations.jsonl", 1, lambda line: line["completion_ids"][2].__setitem__(3, 10**6))


BEYOND = "that the run's numbers do not draw; the first is token"


@pytest.mark.parametrize(
    ("forge", "named"),
    [
        (token, "frozen-s42: step 1, completion 2: "),
        (model, BEYOND),
        (temperature, BEYOND),
        (no_temperature, BEYOND),
        (seed, BEYOND),
        (cut, "step 1, completion 2: it ends before its limit, without a token that ends it"),
        (unknown, "step 1, completion 2: its tokens are too many, none, or unknown to the model"),
    ],
)
def test_forgeries_that_plain_verify_accepts_are_named(
    copied: Path, capsys: pytest.CaptureFixture[str], forge: Callable[[Path], None], named: str
) -> None:
    """Sealed anew, plain verify has nothing to say; the tokens have."""
    forge(copied / "frozen-s42")
    reseal(copied)
    if forge is not seed:  # the directory is named after it
        assert said(capsys, copied)[0] == 0
    code, out, _ = said(capsys, copied, "--draws", "--updates", 0)
    assert code == 1
    problems = [line for line in out.splitlines() if line.startswith("PROBLEM frozen-s42: ")]
    assert any(named in line for line in problems), out
    assert "native-s42: 1 group, " in out


def test_a_forged_update_is_named_and_what_follows_is_not_checked(
    copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another advantage makes another adapter: its step is named, later groups are counted as left out."""
    edit_line(copied / "native-s42" / "completions.jsonl", 1, lambda line: line.update(advantage=1.25))
    reseal(copied)
    code, out, _ = said(capsys, copied, "--draws")
    assert (code, "PROBLEM native-s42: the update of step 0 gives another adapter here" in out) == (1, True)
    assert "NOT CHECKED 1 group of native-s42: they come after an update that gave another adapter" in out


def test_a_sample_is_drawn_by_a_seed_that_is_printed(
    cohort: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One group of each run, the same one for the same seed."""
    _, out, _ = said(capsys, cohort, "--draws", "--sample", 1, "--seed", 5)
    assert "reading 1 group of every run: --seed 5 draws the same\n" in out
    assert "draws: 2 groups of 2 runs, " in out
    assert said(capsys, cohort, "--draws", "--sample", 1, "--seed", 5)[1] == out


@pytest.mark.parametrize(
    ("updates", "groups", "adapters"),
    [(0, 1, "\n"), (1, 2, "; 1 of 1 adapter made again have the recorded bits\n")],
)
def test_as_many_updates_are_made_as_were_asked_for_and_groups_behind_them_are_counted(
    cohort: Path, capsys: pytest.CaptureFixture[str], updates: int, groups: int, adapters: str
) -> None:
    """Of the same bits here: what is left out was not asked for, and no update is made beyond that."""
    code, out, _ = said(capsys, cohort, "--draws", "--updates", updates)
    (line,) = [line for line in out.splitlines(keepends=True) if line.startswith("native-s42: ")]
    assert (code, line.startswith(f"native-s42: {groups} group")) == (0, True)
    assert line.endswith(f"all are what the random numbers draw{adapters}")
    left_out = "NOT CHECKED 1 group of native-s42: they come after more updates than --updates makes again"
    assert (left_out in out, "other bits" in out) == (groups == 1, False)


def test_forgeries_within_rounding_may_not_lie_in_one_group(
    cohort: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten tokens of the second group differ, each within the bound, and together within the run's total."""
    shares = iter([np.full(400, 0.2001), np.full(10, 0.402)])

    def intervals(*_: object) -> list[tuple[np.ndarray, ...]]:
        number = next(shares)
        return [(np.full_like(number, 0.2), np.full_like(number, 0.4), number)]

    monkeypatch.setattr(sampling, "token_intervals", intervals)
    (draws,) = check_draws(cohort / "frozen-s42", TokenDrawOptions(), PlainProgress())
    assert (draws.tally.unequal, draws.tally.together < draws.tally.allowed) == (10, True)
    (problem,) = draws.findings
    assert (problem.where, "10 of 10 tokens differ" in problem.line) == ("step 1", True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--updates", "1"], "--updates only works with --draws"),
        (["--sample", "1"], "--sample only works with --recompute or --draws"),
        (["--draws", "--updates", "-1"], "--updates takes a number of at least 0"),
        (["--draws", "--seed", "1"], "--seed draws a sample"),
    ],
)
def test_what_cannot_be_asked_is_one_line(
    cohort: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    """Exit code 2 and a sentence."""
    code, _, err = said(capsys, cohort, *arguments)
    assert (code, message in err) == (2, True)


def test_a_model_that_is_not_here_is_named_and_nothing_passes(
    copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The groups are counted as not checked, and where none could be read the command fails."""
    for run in ("frozen-s42", "native-s42"):
        edit_manifest(copied / run, lambda m: m["model_files"].update({"config.json": "0" * 64}))
    reseal(copied)
    code, out, err = said(capsys, copied, "--draws")
    assert code == 2
    assert "NOT CHECKED 4 groups of frozen-s42, native-s42: its model " in out
    assert "is not here with the recorded checksums (--model DIR)" in out
    assert "no token could be checked" in err


def test_unpacked_evidence_is_read_though_it_has_no_list_over_all(
    cohort: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its adapters are not shipped, and made again; only the tokens are vouched for, of one run all of it."""
    results = tmp_path / "tiny"
    shutil.copytree(cohort, results / "cohort")
    assert main(["pack", str(results), "--into", str(tmp_path / "ev")]) == 0
    assert main(["unpack", str(tmp_path / "ev"), "--out", str(tmp_path / "out")]) == 0
    code, out, _ = said(capsys, tmp_path / "out" / "tiny", "--draws")
    assert (code, "no list of checksums" in out, "verify: " in out) == (0, True, False)
    assert "2 of 2 adapters made again have the recorded bits" in out
    run = tmp_path / "out" / "tiny" / "cohort" / "native-s42"
    code, out, _ = said(capsys, run, "--draws", "--updates", 0)
    assert (code, "NOT COMPARED 2 x belongs to a final adapter" in out, "verify: " in out) == (0, True, True)


def test_other_bits_are_made_again_when_asked_and_compared_by_distance(
    profile: Profile, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sampled and trained in bfloat16: read in float32 within the bound, twice that behind its updates."""
    read: list[RunDraws] = []

    def kept(*given: Any) -> Iterator[RunDraws]:
        for draws in check_draws(*given):
            read.append(draws)
            yield draws

    monkeypatch.setattr("search_to_signal.verify.token_draws.check_draws", kept)
    loading = ModelSettings(name="qwen2-2.1m", dtype="bfloat16")
    # Few and short: a processor takes 25 times as long with such bits.
    pairs = msgspec.structs.replace(
        profile.generation, group_size=2, max_prompt_tokens=64, max_completion_tokens=64
    )
    run_cohort(
        msgspec.structs.replace(profile, model=loading, conditions=("native",), generation=pairs),
        tmp_path / "tiny",
        PlainProgress(),
    )
    code, out, _ = said(capsys, tmp_path / "tiny", "--draws")
    left_out = "NOT CHECKED 1 group of native-s42: their adapters were made in other bits"
    assert (code, left_out in out) == (0, True)
    code, out, _ = said(capsys, tmp_path / "tiny", "--draws", "--updates", 2)
    assert (code, "NOT CHECKED" in out, "native-s42: 2 groups, " in out) == (0, False, True)
    (apart,) = re.findall(r"0 of 2 adapters made again have the recorded bits; .* differs by (\S+) of", out)
    assert 0 < float(apart) < 1
    assert [draws.tally.bound for draws in read] == [0.5, 1.0]
    stored = tmp_path / "tiny" / "native-s42" / ADAPTER / TENSORS
    # Clones, since loaded tensors are views of the file, which is written again.
    tensors = {name: tensor.clone() for name, tensor in load_file(stored).items()}
    save_file({name: 1000.0 * t if "lora_B" in name else t for name, t in tensors.items()}, stored)
    code, out, _ = said(capsys, tmp_path / "tiny", "--draws", "--updates", 2)
    found = re.search(
        r"PROBLEM native-s42: the final adapter differs by (\S+) of the smaller one's size", out
    )
    assert code == 1
    assert found is not None, out
    assert float(found[1]) == pytest.approx(999.0, rel=0.1)
