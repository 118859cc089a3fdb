"""The noise table survives on disk, and a damaged or unwritable cache only costs time."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from search_to_signal.problems.ant_colony import noise
from search_to_signal.problems.ant_colony import noise as store
from search_to_signal.problems.ant_colony.agreement import kernels_agree

pytestmark = pytest.mark.slow

SHAPE = noise.Colony(40, 6, 9)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache directory of our own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "search-to-signal" / "noise"


def test_blocks_are_those_of_torch_multinomial():
    """The k-th block decides torch's k-th draw, whatever the weights."""
    table = noise.draw_exponentials(SHAPE)
    generator = torch.Generator().manual_seed(noise.GENERATOR_SEED)
    for block in table:
        weight = torch.rand(6, 9, dtype=torch.float64)
        drawn = torch.multinomial(weight, 1, generator=generator).squeeze(1).numpy()
        assert np.array_equal(drawn, (weight.numpy() / block).argmax(axis=1))


def test_stored_noise_comes_back_unchanged(cache):
    """What was saved is loaded bit for bit, and cannot be written to."""
    drawn = noise.draw_noise(SHAPE)
    store.save("table", drawn)
    found = store.load("table")
    assert np.array_equal(found.exact, drawn.exact)
    assert np.array_equal(found.coarse, drawn.coarse)
    assert found.agrees is True
    with pytest.raises(ValueError, match="read-only"):
        found.exact[0] = 1.0


@pytest.mark.parametrize("damage", ["flip", "cut", "remove", "note"])
def test_damaged_noise_is_not_used(cache, damage):
    """A flipped byte, a cut file, a missing file or a broken note counts as no cache at all."""
    store.save("table", noise.draw_noise(SHAPE))
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
    assert store.load("table") is None


def test_no_cache_directory_falls_back_to_memory(tmp_path, monkeypatch):
    """Where nothing can be written the noise is drawn and used all the same."""
    blocker = tmp_path / "file"
    blocker.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocker))
    table = noise.noise_for.__wrapped__(SHAPE)
    assert table.agrees
    assert store.load("anything") is None


def test_writers_at_the_same_time_leave_whole_files(cache):
    """Several writers of one table leave it loadable, with no drafts behind."""
    drawn = noise.draw_noise(SHAPE)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: store.save("table", drawn), range(32)))
    assert store.load("table") is not None
    assert len(list(cache.iterdir())) == 3


def test_cached_noise_needs_no_torch(cache):
    """A later process scores from the stored table without importing torch."""
    code = (
        "import sys; from search_to_signal.problems.ant_colony.noise import Colony, noise_for;"
        "noise_for(Colony(40, 6, 9)); print('torch' in sys.modules)"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache.parents[1])}
    runs = [
        subprocess.run(
            [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
        )
        for _ in range(2)
    ]
    assert [run.stdout.strip() for run in runs] == ["True", "False"]


def test_foreign_noise_is_not_trusted():
    """Noise that is not torch's own, or leaves the sound range, sends the colonies to the slower path."""
    table = noise.draw_exponentials(SHAPE)
    assert kernels_agree(table)
    assert not kernels_agree(table[::-1])
    table[35] = 1e-13
    assert not kernels_agree(table)
