"""The noise table survives on disk, and a damaged or unwritable cache only costs time."""

import hashlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from search_to_signal.problems.ant_colony import colonies

pytestmark = pytest.mark.slow

SHAPE = colonies.Colony(40, 6, 9)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache directory of our own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "search-to-signal" / "noise"


@pytest.mark.skipif(not torch.__version__.startswith("2.5."), reason="newer releases draw other noise")
def test_blocks_are_those_of_torch_multinomial():
    """The k-th block decides the k-th draw of torch 2.5.1, whatever the weights."""
    table = colonies.draw_exponentials(SHAPE)
    generator = torch.Generator().manual_seed(colonies.GENERATOR_SEED)
    for block in table:
        weight = torch.rand(6, 9, dtype=torch.float64)
        drawn = torch.multinomial(weight, 1, generator=generator).squeeze(1).numpy()
        assert np.array_equal(drawn, (weight.numpy() / block).argmax(axis=1))


def test_stored_noise_comes_back_unchanged(cache):
    """What was saved is loaded bit for bit, and cannot be written to."""
    drawn = colonies.draw_noise(SHAPE)
    colonies.save("table", drawn)
    found = colonies.load("table")
    assert np.array_equal(found.exact, drawn.exact)
    assert np.array_equal(found.coarse, drawn.coarse)
    with pytest.raises(ValueError, match="read-only"):
        found.exact[0] = 1.0


@pytest.mark.parametrize("damage", ["flip", "cut", "remove", "note"])
def test_damaged_noise_is_not_used(cache, damage):
    """A flipped byte, a cut file, a missing file or a broken note counts as no cache at all."""
    colonies.save("table", colonies.draw_noise(SHAPE))
    path = max(cache.glob("*.npy"), key=lambda file: file.stat().st_size)
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[-1] ^= 1
        path.write_bytes(content)
    elif damage == "cut":
        path.write_bytes(content[:200])
    elif damage == "remove":
        path.unlink()
    else:
        (cache / "table.json").write_text("{}")
    assert colonies.load("table") is None


def test_no_cache_directory_falls_back_to_memory(tmp_path, monkeypatch):
    """Where nothing can be written the noise is drawn and used all the same."""
    blocker = tmp_path / "file"
    blocker.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocker))
    assert np.array_equal(colonies.noise_for.__wrapped__(SHAPE).exact, colonies.draw_exponentials(SHAPE))
    assert colonies.load("anything") is None


def test_writers_at_the_same_time_leave_whole_files(cache):
    """Several writers of one table leave it loadable, with no drafts behind."""
    drawn = colonies.draw_noise(SHAPE)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: colonies.save("table", drawn), range(32)))
    assert colonies.load("table") is not None
    assert len(list(cache.iterdir())) == 3


def test_noise_needs_no_torch(cache):
    """Drawn or stored, a score's noise is there without torch."""
    code = (
        "import sys; from search_to_signal.problems.ant_colony.colonies import Colony, noise_for;"
        "noise_for(Colony(40, 6, 9)); sys.exit('torch' in sys.modules)"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache.parents[1])}
    for _ in range(2):
        subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def test_the_noise_of_the_training_sets_is_one_everywhere():
    """Another numpy, processor or logarithm that gave other numbers would be found here."""
    digest = hashlib.sha256(colonies.draw_exponentials(colonies.Colony(200, 30, 51)).tobytes()).hexdigest()
    assert digest == "f3da2a99d2d661614b1c217fba8033256de48c6e35f3f6b284dbf26b4398d706"
