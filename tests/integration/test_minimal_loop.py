"""The loop on a page is the loop of recorded runs: same seed, same adapter."""

from pathlib import Path

from tests.cohorts import run_cohort
from tests.forked import Commands
from tests.profiles import profile_head

from search_to_signal.base.progress import PlainProgress
from search_to_signal.records.manifest import read_manifest
from search_to_signal.run.profile import load_profile

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "minimal_loop.py"
GROUPS = 2
PROFILE = f"""{profile_head("factorized", groups=GROUPS, seed=42)}
idea_end = "any_fence"

[generation]
max_prompt_tokens = 1024
max_completion_tokens = 320

[learner]
lora_rank = 16
lora_alpha = 32
learning_rate = 2e-4

[evaluation]
timeout_s = 5.0
wall_factor = 6.0
memory_mb = 256
"""


def test_the_loop_on_a_page_makes_the_adapter_of_a_recorded_run(tmp_path: Path, commands: Commands) -> None:
    """Search, sampling, evaluation, credit and update of the page are those of ``s2s run``, to the bit."""
    (tmp_path / "mine.toml").write_text(PROFILE)
    out = tmp_path / "out"
    (run,) = run_cohort(load_profile(str(tmp_path / "mine.toml")), out, PlainProgress())
    printed = commands.run_file(EXAMPLE, str(GROUPS)).stdout
    assert printed.splitlines()[-1] == f"adapter {read_manifest(run).final_adapter_sha256}"
