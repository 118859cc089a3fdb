"""Profiles and configurations: strict about keys, explicit about names, canonical in form."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from tests.command import Patch
from tests.profiles import plain_profile, profile_head

from search_to_signal.base.errors import ConfigError
from search_to_signal.base.package_data import MODELS, PROFILES
from search_to_signal.base.settings import canonical_json, canonical_sha256, load_toml
from search_to_signal.layers.api.layer import references
from search_to_signal.layers.settings import ApiReference, RestartSettings
from search_to_signal.learner.settings import LearnerSettings
from search_to_signal.models.settings import GenerationSettings, ModelLoading, ModelSettings
from search_to_signal.records.layers import LAYERS, Layer
from search_to_signal.run.config import RunConfig
from search_to_signal.run.learning import model_of_files
from search_to_signal.run.profile import Profile, load_profile
from search_to_signal.search.hosts.calm.settings import SearchSettings

TEXT = profile_head("frozen", groups=2, model="m")


@pytest.mark.parametrize("name", sorted(path.stem for path in PROFILES.glob("*.toml")))
def test_shipped_profiles_load(name: str) -> None:
    assert load_profile(name).runs()


@pytest.mark.parametrize("name", sorted(path.stem for path in PROFILES.glob("*.toml")))
def test_shipped_profiles_audit_the_four_tasks_of_the_paper(name: str) -> None:
    """Cohort, breadth and audit cells record TSP, CVRP, OBP and OP, with the paper's host."""
    profile = load_profile(name)
    if profile.host != "reference":
        return
    cells = (*profile.breadth, *profile.audit)
    assert {profile.problem, *(cell.problem for cell in cells)} == {"tsp", "cvrp", "obp", "op"}


def given(line: str) -> str:
    """A profile with this line in the place of the key's own, or behind it."""
    key = line.split(" ")[0]
    return "".join(f"{row}\n" for row in TEXT.splitlines() if not row.startswith(key)) + line


@pytest.mark.parametrize(
    ("text", "place"),
    [
        *((f"{TEXT}colour = 1\n", "colour"), (f"{TEXT}[learner]\nrank = 3\n", r"rank.*learner")),
        *((f"{TEXT}[evaluation]\nx = 1\n", "x"), (given('groups = "many"'), "groups")),
        *((given("seeds = [1.5]"), "seeds"), (given('purpose = "fun"'), "purpose")),
        *((TEXT.replace("groups = 2\n", ""), "groups"), (b"groups = = 1", ""), (b"\xff\xfe\x00", "")),
        (b"[learner", ""),
    ],
)
def test_what_no_profile_may_hold_is_named(tmp_path: Path, text: str | bytes, place: str) -> None:
    """Unknown keys, nested or not, wrong and missing values, no TOML, no text: with file and key."""
    path = tmp_path / "mine.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(ConfigError, match=rf"mine\.toml.*{place}"):
        load_profile(str(path))


def test_a_line_that_is_no_toml_is_shown(tmp_path: Path) -> None:
    """A syntax error shows the line as it stands in the file, so that its key is named."""
    path = tmp_path / "mine.toml"
    path.write_bytes(b'problem = "tsp"\r\ngroups = six\r\n')
    with pytest.raises(ConfigError, match=r"mine\.toml: .*line 2.*: groups = six$"):
        load_toml(path, Profile)


def test_missing_files_are_named(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere.toml", tmp_path):
        with pytest.raises(ConfigError, match=str(path)):
            load_toml(path, Profile)


def test_unknown_profile_lists_the_known() -> None:
    with pytest.raises(ConfigError, match=r"'smok'.*embedded.*smoke"):
        load_profile("smok")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"problem": "knapsack"}, r"knapsack.*tsp"),
        ({"conditions": ("nativ",)}, r"nativ.*factorized.*native"),
        ({"split": "exam"}, r"exam.*embedded"),
        ({"groups": 0}, "groups"),
        ({"threads": 0}, "threads"),
        ({"jobs": 0}, "jobs"),
        ({"seeds": ()}, "seeds"),
        ({"conditions": ()}, "conditions"),
        ({"seeds": (1, 1)}, "seeds"),
        ({"conditions": ("native", "frozen", "native")}, "conditions"),
    ],
)
def test_impossible_cohorts_are_refused(changes: dict[str, Any], message: str) -> None:
    """Before anything starts, with the known names; two runs of one name would share a directory."""
    with pytest.raises(ConfigError, match=message):
        plain_profile(**changes)


def test_a_formal_restart_is_as_long_as_its_live_run() -> None:
    """Another horizon is refused with what to do; an equal one and any of a smoke profile are not."""
    with pytest.raises(ConfigError, match=r"restart\.groups is 4, but groups is 6"):
        plain_profile(purpose="formal", groups=6, restart=RestartSettings(groups=4))
    for purpose, groups in (("formal", 6), ("formal", None), ("smoke", 4)):
        plain_profile(purpose=purpose, groups=6, restart=RestartSettings(groups=groups))


def test_matched_runs_stand_together() -> None:
    """Seeds outermost, and runs of one seed differ in their condition alone."""
    runs = plain_profile(seeds=(42, 3407)).runs()
    assert [run.name for run in runs] == ["frozen-s42", "native-s42", "frozen-s3407", "native-s3407"]
    for first, second in ((runs[0], runs[1]), (runs[2], runs[3])):
        assert msgspec.structs.replace(first, condition=second.condition) == second
    assert msgspec.structs.replace(runs[0], seed=3407) == runs[2]


def test_every_setting_of_a_profile_reaches_its_runs() -> None:
    """No knob of a profile is left behind on the way to a run."""
    profile = load_profile("embedded")
    for run in profile.runs():
        for name in set(RunConfig.__struct_fields__) - {"layer", "condition", "seed", "parent", "loading"}:
            assert getattr(run, name) == getattr(profile, name), name


def test_how_a_model_is_loaded_reaches_its_runs() -> None:
    """Device, precision and quantization of [model] stand in the configuration of every run and cell."""
    profile = load_profile("pretrained")
    assert isinstance(profile.model, ModelSettings)
    assert profile.model.loading == ModelLoading(device="cuda", dtype="bfloat16")
    cells = [
        run for layer in ("breadth", "audit") for runs in profile.cell_runs(layer).values() for run in runs
    ]
    for run in (*profile.runs(), *cells):
        assert run.model == profile.model.name
        assert run.loading == profile.model.loading


def with_engine(backend: str, loading: ModelLoading, load_in_4bit: bool = False) -> RunConfig:
    """A run whose completions an engine samples, with a table [model]."""
    model = ModelSettings(name="qwen2-2.1m", **msgspec.structs.asdict(loading))
    generation = GenerationSettings(backend=backend)  # type: ignore[arg-type]
    learner = LearnerSettings(load_in_4bit=load_in_4bit)
    return plain_profile(model=model, generation=generation, learner=learner).run("native", 42)


def test_beside_vllm_the_base_of_the_learner_is_loaded_as_the_model_table_says(monkeypatch: Patch) -> None:
    """On the card and in bfloat16, as the engine computes; without a card that is one line."""
    config = with_engine("vllm", ModelLoading(device="cuda", dtype="bfloat16"))
    assert (config.base.device, config.base.dtype) == ("cuda", "bfloat16")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ConfigError):
        model_of_files(config)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["vllm", "unsloth"])
def test_beside_an_engine_a_base_in_4_bits_has_the_head_of_every_other_base(
    backend: str, monkeypatch: Patch
) -> None:
    """In float32: what a card captures of the learner's passes multiplies by nothing else."""
    from search_to_signal.models import local  # which loads the largest libraries

    loaded = local.load_model(MODELS / "qwen2-2.1m", torch.bfloat16)
    monkeypatch.setattr(local, "load_4bit", lambda directory: loaded)
    monkeypatch.setattr(local, "prepare_device", lambda device: None)
    config = with_engine(backend, ModelLoading(), load_in_4bit=True)
    model = model_of_files(config)
    assert model.get_output_embeddings().weight.dtype == torch.float32
    assert model.get_input_embeddings().weight.dtype == torch.bfloat16


def test_an_engine_that_shares_its_weights_takes_no_model_table() -> None:
    """Unsloth loads once for both; a base on the processor stands beside no engine either."""
    with pytest.raises(ConfigError, match=r"'unsloth' loads the model.* \[model\]$"):
        with_engine("unsloth", ModelLoading(device="cuda", dtype="bfloat16"))
    with pytest.raises(ConfigError, match=r'or device = "cuda" for the learner'):
        with_engine("vllm", ModelLoading(dtype="bfloat16"))
    assert with_engine("unsloth", ModelLoading()).base.device == "cpu"


def test_equal_configurations_have_equal_hashes() -> None:
    """The hash follows from the content, survives a round trip, and sees every change."""
    run = plain_profile().runs()[0]
    again = msgspec.json.decode(canonical_json(run), type=RunConfig)
    assert again == run
    assert again.sha256 == run.sha256 == canonical_sha256(msgspec.to_builtins(run))
    changed: list[Callable[[RunConfig], RunConfig]] = [
        lambda r: msgspec.structs.replace(r, seed=7),
        lambda r: msgspec.structs.replace(r, threads=2),
        lambda r: msgspec.structs.replace(r, learner=msgspec.structs.replace(r.learner, kl=0.05)),
    ]
    assert len({run.sha256, *(change(run).sha256 for change in changed)}) == 4


def test_canonical_form_ignores_order() -> None:
    assert canonical_json({"b": 1, "a": [1.5, None]}) == canonical_json({"a": [1.5, None], "b": 1})
    assert canonical_json({"b": 1, "a": 2}) == b'{"a":2,"b":1}'


def test_mappings_by_path_have_plain_directories() -> None:
    run = msgspec.structs.replace(plain_profile().runs()[0], condition="my_package.my_file:MAPPING")
    assert run.name == "my_package.my_file.MAPPING-s1"


def test_a_threshold_of_a_twentieth_is_a_number_in_every_run() -> None:
    """Of the groups of the cohort, of a cell, of an API run; an anchor goes on with its cohort's."""
    profile = msgspec.structs.replace(
        load_profile("embedded"), groups=80, search=SearchSettings(collapse_threshold=-1)
    )
    assert {run.search.collapse_threshold for run in profile.runs()} == {4}
    assert profile.run("frozen", 42, layer="anchor", groups=300).search.collapse_threshold == 4
    cell = next(run for runs in profile.cell_runs("breadth").values() for run in runs)
    assert (cell.groups, cell.search.collapse_threshold) == (20, 1)
    (reference,) = references(profile, ApiReference(seeds=(42,), completions=120))
    assert reference.search.collapse_threshold == 6


def test_the_paper_profile_says_what_the_paper_says() -> None:
    """Every number of the paper's table of parameters, wherever the profile or a default holds it."""
    paper = load_profile("paper")
    search, generation, learner = paper.search, paper.generation, paper.learner
    assert (paper.seeds, paper.groups, generation.group_size) == ((42, 3407, 1926000), 500, 4)
    assert (search.population_size, search.collapse_threshold) == (10, 25)
    weights = (search.simplification, search.injection, search.replacement, search.crossover)
    assert weights == (1, 1, 2, 4)
    assert (generation.max_prompt_tokens, generation.max_completion_tokens) == (2048, 1024)
    assert (generation.engine.context, generation.engine.gpu_memory_utilization) == (4096, 0.8)
    assert (generation.temperature, generation.engine.load_in_4bit) == (0.9, True)
    assert (learner.lora_rank, learner.lora_alpha, learner.learning_rate) == (32, 64, 5e-5)
    assert (learner.optimizer, learner.adam_beta1, learner.adam_beta2) == ("adamw_8bit", 0.9, 0.99)
    assert (learner.weight_decay, learner.max_grad_norm, learner.kl) == (0.1, 0.1, 0.04)
    assert (learner.load_in_4bit, generation.engine.lora_rank) == (True, learner.lora_rank)
    assert paper.anchor is not None
    assert paper.anchor.conditions == ("native", "factorized")
    assert paper.probe is not None
    assert (paper.probe.prompts, paper.probe.completions) == (64, 4)
    assert paper.api is not None
    assert paper.api.completions == 2000


@pytest.mark.parametrize("name", ["embedded", "cohort", "paper", "smoke"])
def test_every_shipped_profile_asks_for_every_layer(name: str) -> None:
    """No layer of the paper, or with a table of its own, is left out by a profile that is shipped."""
    profile = load_profile(name)
    known = [layer for layer in LAYERS if layer.row or layer.key in Profile.__struct_fields__]
    assert [layer.key for layer in known if not profile.asks_for(layer.key)] == []
    assert (profile.purpose == "smoke") == (name == "smoke")


def test_a_table_of_no_layer_is_refused(tmp_path: Path) -> None:
    """What stands under ``layers`` has to be a layer that has no table of its own."""
    path = tmp_path / "mine.toml"
    for key in ("repeat", "restart", "cohort"):
        path.write_text(f"{TEXT}[layers.{key}]\n")
        with pytest.raises(ConfigError, match=rf"layers\.{key}"):
            load_profile(str(path))


def test_settings_of_an_added_layer_are_typed(monkeypatch: Patch) -> None:
    """Its table becomes the layer's own struct; a wrong key is named with the layer."""
    added = Layer("Repeated runs", "nothing", 10, key="repeat")
    monkeypatch.setattr("search_to_signal.run.profile.LAYERS", (*LAYERS, added))
    profile = plain_profile(layers={"repeat": {"groups": 3}})
    assert profile.asks_for("repeat")
    assert profile.settings_of("repeat", RestartSettings) == RestartSettings(groups=3)
    with pytest.raises(ConfigError, match=r"layers\.repeat.*groups"):
        plain_profile(layers={"repeat": {"groups": "three"}}).settings_of("repeat", RestartSettings)
