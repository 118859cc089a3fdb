"""The token step of ``token_step`` as launches of ``card_kernels``, captured once and replayed."""

from typing import NamedTuple

import torch
import triton

from search_to_signal.generators import card_kernels
from search_to_signal.generators.token_step import DecoderLayer, Matrix, State, Weights

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
        self._partial = buffer(max(self._partial_size(matrix) for matrix in matrices))

    def _partial_size(self, matrix: Matrix) -> int:
        return cut(matrix).parts * self._rows * (len(matrix.weight) + matrix.ranks)

    def __call__(self, tokens: Tensor) -> None:
        """As ``read_tokens``."""
        weights, state = self._weights, self._state
        width = weights.embedding.size(1)
        grid = (self._rows, self._blocks)
        card_kernels.embed[grid](
            tokens, weights.embedding, self._x, self._squares, width, _COLUMNS, self._blocks, num_warps=1
        )
        for layer, (keys, values) in zip(weights.layers, state.caches, strict=True):
            self._attention(layer, keys, values)
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
        card_kernels.project[(blocks, shape.parts)](
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

    def _attention(self, layer: DecoderLayer, keys: Tensor, values: Tensor) -> None:
        weights, position, matrix = self._weights, self._state.position, layer.qkv
        heads, others = weights.heads, self._others
        self._project(self._x, matrix, layer.norm)
        second = heads * self._d
        card_kernels.turn_and_store[(heads + 2 * others,)](
            self._partial,
            self._partial if matrix.bias is None else matrix.bias,
            self._partial if matrix.up is None else matrix.up,
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
            HEADS=heads,
            OTHERS=others,
            HALF=self._d // 2,
            RANK=matrix.rank,
            BIASED=matrix.bias is not None,
            PARTS=cut(matrix).parts,
            num_warps=4,
        )
        card_kernels.attend[(self._rows * others, _SPLITS)](
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
        card_kernels.merge[grid](
            self._weighted, self._tops, self._sums, self._mixed, D=self._d, SPLITS=_SPLITS, num_warps=1
        )

    def _add(self, x: Tensor, matrix: Matrix) -> None:
        """The residual stream plus a projection."""
        self._project(x, matrix)
        outputs = len(matrix.weight)
        card_kernels.add_output[(self._blocks,)](
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
        card_kernels.gate[(outputs // 2 // _COLUMNS,)](
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
