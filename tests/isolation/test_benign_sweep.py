"""The ordinary vocabulary of heuristics runs in a worker, with the bits it has outside."""

import os
import subprocess
import sys

import numpy as np
import pytest
from isolation_corpus import MEMORY_MB

from search_to_signal.sandbox.dialogues import ProgramTask
from search_to_signal.sandbox.locks import ALL
from search_to_signal.sandbox.outcomes import Isolation
from search_to_signal.sandbox.pool import Slot
from search_to_signal.sandbox.settings import EvaluationSettings

# Over v (n,), w (n,), m (n, n) with m = n at most 200, k (n,) integers; np, math, itertools and scipy.
EXPRESSIONS = """
v + w; v - w * 2; v / (w + 1); v // 0.3; v % 0.3; v ** 2; v ** -0.5; -v; abs(v - w); v > w; v * (w > 0.5)
np.sqrt(v); np.exp(-v); np.exp2(v); np.log(v + 1); np.log1p(v); np.log2(v + 1); np.log10(v + 1)
np.cbrt(v); np.sin(v); np.cos(v); np.tan(v); np.arctan2(v, w); np.tanh(v); np.hypot(v, w); np.sign(v - w)
np.floor(v * 9); np.round(v, 2); np.clip(v, 0.2, 0.8); np.maximum(v, w); np.minimum(v, w)
np.where(v > w, v, w); np.square(v); np.mean(v); np.std(v); np.var(v); np.median(v); np.percentile(v, 30)
np.quantile(v, 0.9); np.ptp(v); np.sum(v); np.prod(v); np.cumsum(v); np.cumprod(v); np.diff(v); np.max(v)
np.argmax(v); np.argmin(v); np.nanmean(v); np.average(v, weights=w); np.sort(v); np.argsort(v)
np.argpartition(v, 3)[:1]; np.partition(v, 3); np.unique(k); np.bincount(k); np.histogram(v, 8)[0]
np.searchsorted(np.sort(v), w); np.digitize(v, [0.2, 0.5]); np.isin(k, [1, 2]); np.concatenate([v, w])
np.stack([v, w]); np.vstack([v, w]); np.hstack([v, w]); np.column_stack([v, w]); v[::-1]; np.tile(v, 2)
np.repeat(v, 2); np.roll(v, 1); np.flip(v); np.delete(v, 1); np.append(v, 1.0); np.insert(v, 1, 1.0)
np.take(v, k % 7); v[k % 7]; np.nonzero(v > 0.5)[0]; np.flatnonzero(v > 0.5); np.argwhere(v > 0.5)
np.any(v > 2); np.zeros_like(v); np.ones(len(v)); np.full(len(v), 2.0); np.arange(len(v))
np.linspace(0, 1, len(v)); np.eye(5); np.dot(v, w); v @ w; np.inner(v, w); np.outer(v[:50], w[:50])
np.cross(v[:3], w[:3]); np.convolve(v, [1, 2, 1]); np.correlate(v, w[:5]); np.interp(v, [0, 1], [3, 4])
np.gradient(v); np.polyfit(v, w, 2); np.polyval([1, 2], v); np.isfinite(v); np.isnan(v / 0).sum()
np.nan_to_num(v / 0); np.allclose(v, w); np.array_equal(v, v); v.astype(int); v.astype(np.float32) * 2
v.tolist()[:3]; np.float64(v[0]); float(v[0]) ** 0.5; np.fft.fft(v).real; np.meshgrid(v[:9], w[:9])[0]
m @ m; m.T; m.sum(axis=0); m.mean(axis=1); m.min(axis=1); m.argmin(axis=1); m.std(axis=0); np.tril(m)
np.triu(m, 1); np.linalg.norm(m); np.linalg.norm(v); np.linalg.norm(m, axis=1)
np.linalg.inv(m + np.eye(len(m))); np.linalg.det(m[:9, :9]); np.linalg.solve(m + np.eye(len(m)), m[0])
np.linalg.eigh(m + m.T)[0]; np.linalg.svd(m[:60, :60])[1]; np.linalg.pinv(m[:40, :40])
np.linalg.lstsq(m[:40, :9], m[:40, 0], rcond=None)[0]; np.linalg.eigvals(m[:30, :30]).real
np.linalg.matrix_rank(m[:20, :20]); np.einsum('ij,j->i', m, m[0]); np.tensordot(m, m[0], 1)
np.kron(m[:5, :5], m[:5, :5]); np.trace(m); np.diag(m); np.fill_diagonal(m.copy(), 0); np.cov(m[:9])
np.corrcoef(m[:9]); np.apply_along_axis(sum, 0, m[:9]); m[np.ix_([0, 2], [1, 3])]
np.take_along_axis(m, np.argsort(m, axis=1), axis=1); np.lexsort((v, w)); np.ravel(m); m.reshape(-1)[:7]
np.squeeze(m[:1]); 1 / m; m / m.sum(axis=1, keepdims=True); m ** -2; np.exp(-m * 5) * m + m
(m[:, None, :60] - m[None, :60, :60]).sum(-1); np.vectorize(lambda x: x * 2)(v[:50])
np.frompyfunc(abs, 1, 1)(v[:5]).astype(float); np.ma.masked_less(v, 0.5).sum()
np.lib.stride_tricks.sliding_window_view(v, 3).sum(axis=1); np.array(sorted(set(k.tolist())))
np.geomspace(1, 9, 5); math.sqrt(2); math.exp(v[0]); math.hypot(3, v[1]); math.fsum(v[:20])
sum(v[:50].tolist()); max(v.tolist()); math.comb(9, 3); list(itertools.permutations(range(4)))[5]
list(itertools.accumulate(v[:9])); heapq.nsmallest(3, v.tolist())
collections.Counter(k.tolist()).most_common(1)[0][1]; functools.reduce(max, v[:9])
bisect.bisect(sorted(v), 0.5); statistics.mean(v[:9].tolist()); statistics.median(v[:9].tolist())
copy.deepcopy([v[:3]])[0]; float(f'{v[0]:.3f}'); scipy.spatial.distance.cdist(m[:30], m[:30])
scipy.spatial.distance.pdist(m[:30]); scipy.special.expit(v); scipy.stats.rankdata(v)
scipy.stats.zscore(v); scipy.spatial.cKDTree(m[:30, :2]).query(m[:9, :2])[0]
scipy.sparse.csgraph.minimum_spanning_tree(m[:30, :30]).sum()
scipy.optimize.linear_sum_assignment(m[:30, :30])[1]; scipy.cluster.hierarchy.linkage(m[:20, :2]).sum()
scipy.linalg.expm(m[:5, :5]); scipy.spatial.ConvexHull(m[:30, :2]).area
scipy.spatial.Delaunay(m[:30, :2]).simplices.sum(); scipy.ndimage.gaussian_filter(v, 1)
scipy.interpolate.interp1d([0, 1], [2, 3])(v); scipy.optimize.minimize_scalar(lambda x: (x - 2) ** 2).x
scipy.stats.entropy(v)
"""
OPERATIONS = [part.strip() for part in EXPRESSIONS.replace("\n", ";").split(";") if part.strip()]
# Each result becomes one float that holds 48 bits of its digest.
PROGRAM = """
import bisect, collections, copy, functools, hashlib, heapq, itertools, math, statistics
import numpy as np
import scipy.cluster.hierarchy, scipy.interpolate, scipy.linalg, scipy.ndimage, scipy.optimize
import scipy.sparse.csgraph, scipy.spatial, scipy.special, scipy.stats

OPERATIONS = {operations!r}

def f(distance):
    n = int(distance[0, -1])
    v = (np.arange(n) * 0.618) % 1 * 0.9 + 0.01
    w = (np.arange(n) * 0.414) % 1
    k = np.arange(n) * 7 % 11
    s = min(n, 200)
    m = (np.sin(np.arange(s * s) ** 1.3) % 1).reshape(s, s) + 0.01
    digests = []
    for text in OPERATIONS:
        value = eval(text, dict(globals(), v=v, w=w, k=k, m=m))
        raw = np.asarray(0 if value is None else value).tobytes()
        digests.append(float(int.from_bytes(hashlib.blake2b(raw, digest_size=6).digest(), 'big')))
    return np.array([digests[:-1] + [n]])
""".format(operations=[*OPERATIONS, "0"])


class Sweep:
    """Asks for one row of digests; the last column says which size."""

    name, dialogue = "sweep", "matrix"

    def answer_shape(self, instance: dict[str, np.ndarray]) -> tuple[int, ...]:
        return instance["distance"].shape

    def arguments(self, instance: dict[str, np.ndarray], parameters: int) -> tuple[np.ndarray]:
        return (instance["distance"].copy(),)

    def score(self, instance: dict[str, np.ndarray], answer: np.ndarray) -> float:
        self.row = answer[0].tolist()
        return 0.0


def outside(size: int) -> list[float]:
    """The digests of a process without locks, with one thread as in a worker."""
    tail = f"\nrow = f(np.full((1, {len(OPERATIONS) + 1}), {size}.0))[0]\nprint(*map(int, row))"
    fixed = {"OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "PYTHONWARNINGS": "ignore"}
    environment = dict(os.environ) | fixed
    run = [sys.executable, "-c", PROGRAM + tail]
    done = subprocess.run(run, env=environment, capture_output=True, text=True, check=True)
    return [float(word) for word in done.stdout.split()]


@pytest.mark.parametrize("size", [20, 200, 900])
def test_ordinary_operations_have_the_same_bits(size: int) -> None:
    """No operation meets a lock, and none computes anything else in a worker."""
    slot = Slot(EvaluationSettings(timeout_s=20.0, memory_mb=4 * MEMORY_MB), ALL)
    sweep = Sweep()
    task = ProgramTask(sweep, [{"distance": np.full((1, len(OPERATIONS) + 1), float(size))}])
    try:
        run = slot.run(task, PROGRAM)
    finally:
        slot.close()
    assert (run.isolation, run.detail) == (Isolation.OK, "")
    differing = [text for text, a, b in zip(OPERATIONS, sweep.row, outside(size), strict=False) if a != b]
    assert differing == []


def test_the_sweep_is_wide() -> None:
    """At least 150 operations are tried."""
    assert len(OPERATIONS) >= 150
