"""The token step of ``token_step`` as launches of ``card_kernels``, captured once and replayed."""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from search_to_signal.models.token_step import DecoderLayer, Matrix, State, Weights

# Kernels for a card: the token step of ``token_step``, a few rows at a time, in ten launches a layer.
#
# A step of few rows is bound by reading every weight once. So a projection is cut into blocks of outputs and
# parts of the input, as many as keep the card busy; their partial sums are written down, and the kernel
# behind adds them up in order, so that equal inputs give equal bits. Numbers are rounded where transformers
# and PEFT round them: a projection, its adapter's change and each residual in the model's own precision.

# Triton's types are made by its compiler: annotations of kernels are its own.
# mypy: disable-error-code="no-untyped-def,misc,no-untyped-call"


@triton.jit
def embed(tokens, table, x, squares, K, BLOCK: tl.constexpr, BLOCKS: tl.constexpr):
    """x (rows, K): a row of the table per token, and the sums of its squares by blocks of 64 columns."""
    row, block = tl.program_id(0), tl.program_id(1)
    columns = block * BLOCK + tl.arange(0, BLOCK)
    inside = columns < K
    values = tl.load(table + tl.load(tokens + row) * K + columns, mask=inside, other=0.0)
    tl.store(x + row * K + columns, values, mask=inside)
    wide = values.to(tl.float32)
    tl.store(squares + row * BLOCKS + block, tl.sum(wide * wide, axis=0))


@triton.jit
def _input(x, gain, scale, row, here, k, K, NORMED: tl.constexpr):
    values = tl.load(x + row[:, None] * K + k[None, :], mask=here[:, None], other=0.0)
    if NORMED:
        values = (values.to(tl.float32) * scale[:, None]).to(values.dtype) * tl.load(gain + k)[None, :]
    return values


@triton.jit
def project(
    x, squares, gain, weight, pieces, partial,
    rows, K, N, R, epsilon,
    NORMED: tl.constexpr, BLOCKS: tl.constexpr, PARTS: tl.constexpr, PIECES: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """partial (parts, rows, N + R), float32: x times weight (N, K), and x times the sum of pieces (PIECES, R,
    K); x (rows, K) is first brought to unit mean square and multiplied by ``gain`` where ``NORMED``."""
    block, part = tl.program_id(0), tl.program_id(1)
    base = tl.cdiv(N, BLOCK_N)
    row = tl.arange(0, 16)
    here = row < rows
    scale = tl.full([16], 1.0, tl.float32)
    if NORMED:
        place = tl.arange(0, triton.next_power_of_2(BLOCKS))
        known = here[:, None] & (place < BLOCKS)[None, :]
        sums = tl.load(squares + row[:, None] * BLOCKS + place[None, :], mask=known, other=0.0)
        scale = tl.rsqrt(tl.sum(sums, axis=1) / K + epsilon)
    steps = tl.cdiv(tl.cdiv(K, BLOCK_K), PARTS)
    start = part * steps * BLOCK_K
    end = tl.minimum(start + steps * BLOCK_K, K)
    product = tl.zeros([16, BLOCK_N], tl.float32)
    if block < base:
        column = block * BLOCK_N + tl.arange(0, BLOCK_N)
        for first in range(start, end, BLOCK_K):
            k = first + tl.arange(0, BLOCK_K)
            values = _input(x, gain, scale, row, here, k, K, NORMED)
            address = weight + column[:, None].to(tl.int64) * K + k[None, :]
            weights = tl.load(address, mask=(column < N)[:, None], other=0.0)
            product = tl.dot(values, tl.trans(weights), product, input_precision="ieee")
        target, limit = column, N
    else:
        column = (block - base) * BLOCK_N + tl.arange(0, BLOCK_N)
        for first in range(start, end, BLOCK_K):
            k = first + tl.arange(0, BLOCK_K)
            values = _input(x, gain, scale, row, here, k, K, NORMED)
            for piece in tl.static_range(PIECES):
                address = pieces + (piece * R + column[:, None]) * K + k[None, :]
                factor = tl.load(address, mask=(column < R)[:, None], other=0.0)
                product = tl.dot(values, tl.trans(factor), product, input_precision="ieee")
        target, limit = N + column, N + R
    kept = here[:, None] & (target < limit)[None, :]
    tl.store(partial + (part * rows + row[:, None]) * (N + R) + target[None, :], product, mask=kept)


@triton.jit
def _output(
    partial, bias, up, row, here, column, rows, N, R, second, third,
    RANK: tl.constexpr, BIASED: tl.constexpr, PARTS: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    """Some columns of a projection (16, columns): the parts added up, the bias, the adapter's change."""
    width = N + R
    at = row[:, None] * width + column[None, :]
    projected = tl.zeros([16, column.shape[0]], tl.float32)
    for part in tl.static_range(PARTS):
        projected += tl.load(partial + part * rows * width + at, mask=here[:, None], other=0.0)
    if BIASED:
        projected += tl.load(bias + column).to(tl.float32)[None, :]
    projected = projected.to(DTYPE)
    if RANK > 0:
        first = tl.min(column, axis=0)
        rank = tl.arange(0, RANK)
        offset = N + RANK * ((first >= second).to(tl.int32) + (first >= third).to(tl.int32))
        inner = tl.zeros([16, RANK], tl.float32)
        for part in tl.static_range(PARTS):
            place = partial + part * rows * width + row[:, None] * width + offset + rank[None, :]
            inner += tl.load(place, mask=here[:, None], other=0.0)
        factor = tl.load(up + column[:, None] * RANK + rank[None, :])
        change = tl.dot(inner, tl.trans(factor), input_precision="ieee")
        projected = (projected.to(tl.float32) + change).to(DTYPE)
    return projected


@triton.jit
def turn_and_store(
    partial, bias, up, gains, cos, sin, position, q, keys, values,
    rows, room, N, R, second, third, epsilon,
    HEADS: tl.constexpr, OTHERS: tl.constexpr, HALF: tl.constexpr, RANK: tl.constexpr,
    BIASED: tl.constexpr, NORMED: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """A head of the projections of queries, keys and values: turned by its position, keys and values into the
    cache (rows, others, room, d) at ``position``, queries into q (rows, heads, d). Where ``NORMED``, queries
    and keys are first brought to unit mean square and multiplied by ``gains`` (2, d), one row each."""
    head = tl.program_id(0)
    row = tl.arange(0, 16)
    here = row < rows
    half = tl.arange(0, HALF)
    column = head * 2 * HALF + half
    dtype: tl.constexpr = q.dtype.element_ty
    low = _output(partial, bias, up, row, here, column, rows, N, R, second, third, RANK, BIASED, PARTS, dtype)
    high = _output(
        partial, bias, up, row, here, column + HALF, rows, N, R, second, third, RANK, BIASED, PARTS, dtype
    )
    at = tl.load(position)
    if head < HEADS + OTHERS:
        if NORMED:
            wide, other_wide = low.to(tl.float32), high.to(tl.float32)
            squares = tl.sum(wide * wide, axis=1) + tl.sum(other_wide * other_wide, axis=1)
            scale = tl.rsqrt(squares / (2 * HALF) + epsilon)
            gain = gains + (head >= HEADS).to(tl.int32) * 2 * HALF + half
            low = (wide * scale[:, None]).to(dtype) * tl.load(gain)[None, :]
            high = (other_wide * scale[:, None]).to(dtype) * tl.load(gain + HALF)[None, :]
        c0, c1 = tl.load(cos + at * 2 * HALF + half), tl.load(cos + at * 2 * HALF + HALF + half)
        s0, s1 = tl.load(sin + at * 2 * HALF + half), tl.load(sin + at * 2 * HALF + HALF + half)
        turned = (low * c0[None, :]).to(dtype) + (-high * s0[None, :]).to(dtype)
        high = (high * c1[None, :]).to(dtype) + (low * s1[None, :]).to(dtype)
        low = turned
    if head < HEADS:
        target = q + (row[:, None] * HEADS + head) * 2 * HALF + half[None, :]
    elif head < HEADS + OTHERS:
        other = head - HEADS
        target = keys + ((row[:, None] * OTHERS + other) * room + at) * 2 * HALF + half[None, :]
    else:
        other = head - HEADS - OTHERS
        target = values + ((row[:, None] * OTHERS + other) * room + at) * 2 * HALF + half[None, :]
    tl.store(target, low, mask=here[:, None])
    tl.store(target + HALF, high, mask=here[:, None])


@triton.jit
def attend(
    q, keys, values, position, weighted, tops, sums,
    room, scale,
    GROUP: tl.constexpr, WIDE: tl.constexpr, OTHERS: tl.constexpr, D: tl.constexpr,
    SPLITS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Attention of the queries of one key head over one split of the places up to ``position``.

    weighted (rows, heads, splits, d), tops and sums (rows, heads, splits): what ``merge`` puts together.
    """
    pair, split = tl.program_id(0), tl.program_id(1)
    row, other = pair // OTHERS, pair % OTHERS
    member = tl.arange(0, WIDE)
    here = member < GROUP
    head = (row * OTHERS + other) * GROUP + member
    d = tl.arange(0, D)
    queries = tl.load(q + head[:, None] * D + d[None, :], mask=here[:, None], other=0.0)
    places = tl.load(position) + 1
    chunk = tl.cdiv(tl.cdiv(places, SPLITS), BLOCK) * BLOCK
    start = split * chunk
    end = tl.minimum(start + chunk, places)
    cache = (row * OTHERS + other) * room * D
    top = tl.full([WIDE], -float("inf"), tl.float32)
    total = tl.zeros([WIDE], tl.float32)
    mixed = tl.zeros([WIDE, D], tl.float32)
    for first in range(start, end, BLOCK):
        place = first + tl.arange(0, BLOCK)
        seen = place < end
        at = cache + place[:, None] * D + d[None, :]
        k = tl.load(keys + at, mask=seen[:, None], other=0.0)
        scores = tl.dot(queries, tl.trans(k), input_precision="ieee") * scale
        scores = tl.where(seen[None, :], scores, -float("inf"))
        higher = tl.maximum(top, tl.max(scores, axis=1))
        shares = tl.exp(scores - higher[:, None])
        fade = tl.exp(top - higher)
        total = total * fade + tl.sum(shares, axis=1)
        v = tl.load(values + at, mask=seen[:, None], other=0.0)
        mixed = tl.dot(shares.to(v.dtype), v, mixed * fade[:, None], input_precision="ieee")
        top = higher
    part = head * SPLITS + split
    tl.store(weighted + part[:, None] * D + d[None, :], mixed, mask=here[:, None])
    tl.store(tops + part, top, mask=here)
    tl.store(sums + part, total, mask=here)


@triton.jit
def merge(weighted, tops, sums, mixed, D: tl.constexpr, SPLITS: tl.constexpr):
    """mixed (rows, heads, d): the splits' attention, each by its share."""
    head = tl.program_id(0)
    split, d = tl.arange(0, SPLITS), tl.arange(0, D)
    top = tl.load(tops + head * SPLITS + split)
    share = tl.exp(top - tl.max(top, axis=0))
    total = tl.sum(share * tl.load(sums + head * SPLITS + split), axis=0)
    values = tl.load(weighted + (head * SPLITS + split)[:, None] * D + d[None, :])
    kept = tl.where((share > 0)[:, None], values * share[:, None], 0.0)
    tl.store(mixed + head * D + d, (tl.sum(kept, axis=0) / total).to(mixed.dtype.element_ty))


@triton.jit
def add_output(
    partial, bias, up, x, squares,
    rows, N, R,
    RANK: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """x (rows, N) plus a projection, in place, and the sums of its squares by blocks of columns."""
    block = tl.program_id(0)
    row = tl.arange(0, 16)
    here = row < rows
    column = block * BLOCK + tl.arange(0, BLOCK)
    dtype: tl.constexpr = x.dtype.element_ty
    projected = _output(partial, bias, up, row, here, column, rows, N, R, N, N, RANK, False, PARTS, dtype)
    at = x + row[:, None] * N + column[None, :]
    total = (tl.load(at, mask=here[:, None], other=0.0) + projected).to(dtype)
    tl.store(at, total, mask=here[:, None])
    wide = total.to(tl.float32)
    tl.store(squares + row * BLOCKS + block, tl.sum(wide * wide, axis=1), mask=here)


@triton.jit
def gate(
    partial, up, h,
    rows, N, R,
    RANK: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """h (rows, N / 2): the first half of a projection's columns through SiLU, times the second half."""
    block = tl.program_id(0)
    row = tl.arange(0, 16)
    here = row < rows
    half = N // 2
    column = block * BLOCK + tl.arange(0, BLOCK)
    dtype: tl.constexpr = h.dtype.element_ty
    first = _output(partial, up, up, row, here, column, rows, N, R, half, N, RANK, False, PARTS, dtype)
    second = _output(
        partial, up, up, row, here, column + half, rows, N, R, half, N, RANK, False, PARTS, dtype
    )
    wide = first.to(tl.float32)
    opened = (wide / (1.0 + tl.exp(-wide))).to(dtype)
    tl.store(h + row[:, None] * half + column[None, :], opened * second, mask=here[:, None])


Tensor = torch.Tensor

# Rows of a tile of the card's matrix units: what a group has at most.
MOST_ROWS = 16
_COLUMNS, _SPLITS, _PLACES = 64, 16, 32
_WARPS, _STAGES = 4, 4
# So many blocks keep all of a card's processors at work.
_BUSY = 560


class Shape(NamedTuple):
    """How a projection is cut: ``parts`` of its inputs, ``block`` outputs and ``step`` inputs at a time."""

    parts: int
    block: int
    step: int


_HEAD = Shape(1, 64, 128)


def cut(matrix: Matrix) -> Shape:
    """The cut of a layer's projection; it follows from the sizes alone, so that bits do too."""
    (outputs, inputs), block, step = matrix.weight.shape, 32, 64
    blocks = -(-outputs // block) + -(-matrix.ranks // block)
    steps = -(-inputs // step)
    parts = min(steps, -(-_BUSY // blocks))
    return Shape(-(-steps // -(-steps // parts)), block, step)


def can_step(weights: Weights, rows: int) -> bool:
    """Whether the kernels fit a model: whole blocks of inputs and outputs, fitting heads and ranks."""
    layer = weights.layers[0]
    size = weights.cos.size(1)
    matrices = (layer.qkv, layer.out, layer.gate_up, layer.down)
    whole = all(outputs % _COLUMNS == 0 for matrix in matrices for outputs in matrix.sizes)
    whole &= all(matrix.weight.size(1) % _HEAD.step == 0 for matrix in matrices) and size in (64, 128)
    group = weights.heads * size // layer.qkv.sizes[1]
    return whole and rows <= MOST_ROWS and group <= MOST_ROWS and layer.qkv.rank in (0, 16, 32, 64, 128)


class CardStep:
    """Reads a token of every row; it owns the buffers between the kernels."""

    def __init__(self, weights: Weights, state: State) -> None:
        self._weights, self._state = weights, state
        layer, keys = weights.layers[0], state.caches[0][0]
        self._rows, self._others, self._room, self._d = keys.shape
        rows, width, heads = self._rows, weights.embedding.size(1), weights.heads
        self._blocks = -(-width // _COLUMNS)

        def buffer(*sizes: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(sizes, device=keys.device, dtype=dtype)

        self._x = buffer(rows, width, dtype=keys.dtype)
        self._squares = buffer(rows, self._blocks)
        self._q = buffer(rows, heads, self._d, dtype=keys.dtype)
        self._mixed = buffer(rows, heads * self._d, dtype=keys.dtype)
        self._weighted = buffer(rows, heads, _SPLITS, self._d)
        self._tops, self._sums = buffer(rows, heads, _SPLITS), buffer(rows, heads, _SPLITS)
        self._h = buffer(rows, layer.down.weight.size(1), dtype=keys.dtype)
        matrices = (layer.qkv, layer.out, layer.gate_up, layer.down)
        self._gains = [layer.head_norms and torch.cat(layer.head_norms) for layer in weights.layers]
        self._partial = buffer(max(self._partial_size(matrix) for matrix in matrices))

    def _partial_size(self, matrix: Matrix) -> int:
        return cut(matrix).parts * self._rows * (len(matrix.weight) + matrix.ranks)

    def __call__(self, tokens: Tensor) -> None:
        """As ``read_tokens``."""
        weights, state = self._weights, self._state
        width = weights.embedding.size(1)
        grid = (self._rows, self._blocks)
        embed[grid](
            tokens, weights.embedding, self._x, self._squares, width, _COLUMNS, self._blocks, num_warps=1
        )
        for layer, gains, cache in zip(weights.layers, self._gains, state.caches, strict=True):
            self._attention(layer, gains, *cache)
            self._add(self._mixed, layer.out)
            self._project(self._x, layer.gate_up, layer.mlp_norm)
            self._gate(layer.gate_up)
            self._add(self._h, layer.down)
        head = Matrix(weights.head, None, (len(weights.head),))
        self._project(self._x, head, weights.norm, state.logits)

    def _project(
        self, x: Tensor, matrix: Matrix, gain: Tensor | None = None, target: Tensor | None = None
    ) -> None:
        outputs, inputs = matrix.weight.shape
        shape = cut(matrix) if target is None else _HEAD
        blocks = triton.cdiv(outputs, shape.block) + triton.cdiv(matrix.ranks, shape.block)
        project[(blocks, shape.parts)](
            x,
            self._squares,
            matrix.weight if gain is None else gain,
            matrix.weight,
            matrix.weight if matrix.pieces is None else matrix.pieces,
            self._partial if target is None else target,
            self._rows,
            inputs,
            outputs,
            matrix.ranks,
            self._weights.epsilon,
            NORMED=gain is not None,
            BLOCKS=self._blocks,
            PARTS=shape.parts,
            PIECES=0 if matrix.pieces is None else len(matrix.pieces),
            BLOCK_N=shape.block,
            BLOCK_K=shape.step,
            num_warps=_WARPS,
            num_stages=_STAGES,
        )

    def _attention(self, layer: DecoderLayer, gains: Tensor | None, keys: Tensor, values: Tensor) -> None:
        weights, position, matrix = self._weights, self._state.position, layer.qkv
        heads, others = weights.heads, self._others
        self._project(self._x, matrix, layer.norm)
        second = heads * self._d
        turn_and_store[(heads + 2 * others,)](
            self._partial,
            self._partial if matrix.bias is None else matrix.bias,
            self._partial if matrix.up is None else matrix.up,
            self._partial if gains is None else gains,
            weights.cos,
            weights.sin,
            position,
            self._q,
            keys,
            values,
            self._rows,
            self._room,
            len(matrix.weight),
            matrix.ranks,
            second,
            second + others * self._d,
            weights.epsilon,
            HEADS=heads,
            OTHERS=others,
            HALF=self._d // 2,
            RANK=matrix.rank,
            BIASED=matrix.bias is not None,
            NORMED=gains is not None,
            PARTS=cut(matrix).parts,
            num_warps=4,
        )
        attend[(self._rows * others, _SPLITS)](
            self._q,
            keys,
            values,
            position,
            self._weighted,
            self._tops,
            self._sums,
            self._room,
            self._d**-0.5,
            GROUP=heads // others,
            WIDE=MOST_ROWS,
            OTHERS=others,
            D=self._d,
            SPLITS=_SPLITS,
            BLOCK=_PLACES,
            num_warps=4,
        )
        grid = (self._rows * heads,)
        merge[grid](
            self._weighted, self._tops, self._sums, self._mixed, D=self._d, SPLITS=_SPLITS, num_warps=1
        )

    def _add(self, x: Tensor, matrix: Matrix) -> None:
        self._project(x, matrix)
        outputs = len(matrix.weight)
        add_output[(self._blocks,)](
            self._partial,
            self._partial,
            self._partial if matrix.up is None else matrix.up,
            self._x,
            self._squares,
            self._rows,
            outputs,
            matrix.rank,
            RANK=matrix.rank,
            PARTS=cut(matrix).parts,
            BLOCK=_COLUMNS,
            BLOCKS=self._blocks,
            num_warps=4,
        )

    def _gate(self, matrix: Matrix) -> None:
        outputs = len(matrix.weight)
        gate[(outputs // 2 // _COLUMNS,)](
            self._partial,
            self._partial if matrix.up is None else matrix.up,
            self._h,
            self._rows,
            outputs,
            matrix.ranks,
            RANK=matrix.rank,
            PARTS=cut(matrix).parts,
            BLOCK=_COLUMNS,
            num_warps=4,
        )
