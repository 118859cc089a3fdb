"""The process in which one candidate runs: lock up, read the source, answer questions until killed.

Nothing in here is trusted once the candidate has been executed. What protects the score is that the
parent checks every answer; what protects the machine is the kernel's locks, set before the source
arrives. This file therefore may catch everything: it is the isolation boundary.
"""

import ast
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from types import CodeType
from typing import Any

import numpy as np

from search_to_signal.base.numerics import read_by_rows
from search_to_signal.sandbox import wire_format
from search_to_signal.sandbox.locks import DATA_FD
from search_to_signal.sandbox.wire_format import DTYPES, Argument, Array

# The static gate of strict mode: readable reasons for a model, never a claim of security.
#
# It runs here, before any of the candidate's code, because parsing hostile text can crash the parser. Paper
# mode does without it: what the host would run is run, and the kernel's locks hold.

# The words of strict mode: which syntax, modules and names a heuristic may use.


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


SOURCE_LIMIT = 20_000

NODES = _words(
    """Module FunctionDef arguments arg Return Assign AugAssign AnnAssign For While If Expr Pass Break
    Continue Raise Try ExceptHandler Assert Import ImportFrom alias BoolOp NamedExpr BinOp UnaryOp Lambda
    IfExp Dict Set ListComp SetComp DictComp GeneratorExp Compare Call FormattedValue JoinedStr Constant
    Attribute Subscript Starred Name List Tuple Slice comprehension keyword Load Store Del Delete Nonlocal
    With withitem And Or Add Sub Mult MatMult Div Mod Pow LShift RShift BitOr BitXor BitAnd FloorDiv Invert
    Not UAdd USub Eq NotEq Lt LtE Gt GtE Is IsNot In NotIn"""
)
MODULES = _words(
    "__future__ numpy math itertools functools collections heapq bisect operator typing numpy.linalg"
)
FORBIDDEN_NAMES = _words(
    """eval exec compile open globals locals vars getattr setattr delattr input breakpoint id hash type
    object memoryview bytearray super classmethod property staticmethod exit quit help dir repr"""
)

_SOURCES = (
    *("numpy", "numpy.linalg", "numpy.fft", "numpy.ndarray", "numpy.float64", "numpy.add", "math"),
    *("itertools", "functools", "collections", "heapq", "bisect", "operator", "typing"),
    *("collections.deque", "collections.Counter", "collections.OrderedDict", "collections.defaultdict"),
)
_TYPES = (list, dict, set, frozenset, str, tuple, int, float, complex, slice, range)
_MORE = _words("args cache_clear cache_info eps max min tiny bits dtype newaxis")
# Public names that read or write files, reach modules, raw memory, addresses or chance.
_DENIED = _words(
    """os sys types typing tofile dump dumps ctypes ctypeslib setflags flags data tobytes tostring format
    format_map seterr seterrcall setbufsize set_printoptions set_string_function set_numeric_ops load save
    savez savez_compressed loadtxt savetxt fromfile genfromtxt memmap DataSource fromregex random testing
    distutils f2py lib core compat source info lookfor who show_config get_include empty empty_like
    getbuffer byte_bounds may_share_memory frombuffer nditer nested_iters deprecate add_newdoc
    add_docstring disp safe_eval abc version helper attrgetter methodcaller ma rec char strings matlib
    emath polynomial base dtypes exceptions re ForwardRef get_type_hints"""
)


@cache
def allowed_attributes() -> frozenset[str]:
    """Public names of what heuristics legitimately use, without those that reach out of it."""
    names = set(_MORE)
    for path in _SOURCES:
        source = _resolve(path)
        names |= set(getattr(source, "__all__", dir(source)))
    for kind in _TYPES:
        names |= set(dir(kind))
    return frozenset(name for name in names if not name.startswith("_")) - _DENIED


def _resolve(path: str) -> object:
    module, _, name = path.rpartition(".")
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        return getattr(importlib.import_module(module), name)


_TOP_LEVEL = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.Assign, ast.AnnAssign, ast.Expr)
_CONSTANT = (
    *(ast.Constant, ast.Tuple, ast.UnaryOp, ast.BinOp, ast.operator, ast.unaryop),
    *(ast.Name, ast.Attribute, ast.Load),
)
_PLAIN_DEFAULT = (ast.Constant, ast.UnaryOp, ast.Name, ast.Attribute, ast.Tuple)


def refusal(source: str) -> str | None:
    """Return why strict mode does not run a program, with the line, or None."""
    if len(source) > SOURCE_LIMIT:
        return f"the source is longer than {SOURCE_LIMIT} characters"
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        return f"the source does not parse: {type(error).__name__}"
    return next(_objections(tree), None)


def _objections(tree: ast.Module) -> Iterator[str]:
    for statement in tree.body:
        if not _is_harmless_at_the_top(statement):
            yield f"line {statement.lineno}: only imports, functions and constants at the top level"
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        reason = _objection(node, called)
        if reason:
            yield f"line {getattr(node, 'lineno', 1)}: {reason}"


def _is_harmless_at_the_top(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
        return all(isinstance(node, _CONSTANT) for node in ast.walk(statement.value))
    return isinstance(statement, _TOP_LEVEL)


def _objection(node: ast.AST, called: set[int]) -> str | None:
    if type(node).__name__ not in NODES:
        return f"{type(node).__name__} is not part of the language of heuristics"
    if isinstance(node, ast.Name):
        return _about_name(node.id)
    if isinstance(node, ast.arg):
        return _about_name(node.arg)
    if isinstance(node, ast.Attribute):
        return _about_attribute(node, called)
    if isinstance(node, ast.Import):
        return next(filter(None, (_about_module(alias.name) for alias in node.names)), None)
    if isinstance(node, ast.ImportFrom):
        return _about_import_from(node)
    if isinstance(node, ast.FunctionDef | ast.Lambda):
        return _about_function(node)
    return None


def _about_name(name: str) -> str | None:
    return f"the name {name} is not available" if name.startswith("__") or name in FORBIDDEN_NAMES else None


def _about_attribute(node: ast.Attribute, called: set[int]) -> str | None:
    if not isinstance(node.ctx, ast.Load):
        return f"attributes may not be changed ({node.attr})"
    if node.attr.startswith("_") or node.attr not in allowed_attributes():
        return f"the attribute {node.attr} is not available"
    return "ndarray() is uninitialised memory" if node.attr == "ndarray" and id(node) in called else None


def _about_module(name: str) -> str | None:
    return None if name in MODULES else f"the module {name} is not available"


def _about_import_from(node: ast.ImportFrom) -> str | None:
    module = "." if node.level else node.module or "."
    if reason := _about_module(module):
        return reason
    allowed = {alias.name for alias in node.names} if module == "__future__" else allowed_attributes()
    hidden = [alias.name for alias in node.names if alias.name not in allowed]
    return f"{hidden[0]} cannot be imported from {module}" if hidden else None


def _about_function(node: ast.FunctionDef | ast.Lambda) -> str | None:
    if isinstance(node, ast.FunctionDef) and node.decorator_list:
        return "decorators are not available"
    defaults = [*node.args.defaults, *filter(None, node.args.kw_defaults)]
    harmless = all(isinstance(value, _PLAIN_DEFAULT) for value in defaults)
    return None if harmless else "a default may not be mutable"


Function = Callable[..., Any]

FILE_NAME = "<candidate>"


class NotOneFunctionError(Exception):
    """The source does not define exactly one function."""


class Program:
    """A source whose function starts afresh on demand; raises what compiling it raises.

    The host hands every instance a freshly unpickled function, so that globals, mutable defaults and function
    attributes never carry over (HOST.md, point 18). Imported modules are shared, as there (D34).
    """

    def __init__(self, source: str) -> None:
        self._code = compile(source, FILE_NAME, "exec", dont_inherit=True)
        self._names: dict[str, Any] = {}

    def fresh(self) -> Function:
        """Execute the source in an empty namespace; the function before it loses all that it kept.

        Returns the one top-level callable that has a code object. Raises NotOneFunctionError, and what the
        source raises.
        """
        self._names.clear()
        exec(self._code, self._names)
        functions = [
            value
            for value in self._names.values()
            if callable(value) and isinstance(getattr(value, "__code__", None), CodeType)
        ]
        if len(functions) != 1:
            raise NotOneFunctionError(f"{len(functions)} functions at the top level instead of one")
        function: Function = functions[0]
        return function


def function_of(code: str) -> Function:
    """Execute trusted source text, unprotected, and return the one function that it defines."""
    return Program(code).fresh()


# The worker's side of each dialogue: call the heuristic as the host does, answer with decisions only.


class DecisionError(Exception):
    """The heuristic named something that cannot be chosen."""


class OutputError(Exception):
    """The heuristic returned something of another kind than its task asks for."""


def build_tour(function: Function, distance: Array) -> bytes:
    """Visit all nodes from node 0 as the host does; the tour as int64, shape (n,).

    Every call gets a fresh set built from the ascending unvisited nodes and a fresh copy of the matrix;
    -1 stands for the last unvisited node. Raises DecisionError for a node that is not unvisited.
    """
    unvisited = list(range(1, len(distance)))
    tour = [0]
    while unvisited:
        node = int(function(tour[-1], 0, set(unvisited), distance.copy()))
        if node == -1:
            node = unvisited[-1]
        if node not in unvisited:
            raise DecisionError(f"step {len(tour)}: the answer is no unvisited node")
        unvisited.remove(node)
        tour.append(node)
    return np.array(tour, dtype="<i8").tobytes()


def choose(function: Function, arguments: Sequence[Argument]) -> int:
    """Index of the first maximum of the returned priorities; a NaN counts as one, as in numpy."""
    return int(np.argmax(function(*arguments)))


def fill_matrix(
    function: Function, shape: tuple[int, ...], arguments: Sequence[Argument], by_rows: bool = False
) -> tuple[int, bytes]:
    """Call once; the matrix with the number of its element type, which is kept.

    ``by_rows`` takes what is that matrix to a reader of rows (``read_by_rows``). Raises OutputError when the
    answer is no numpy array of that shape and of a known type.
    """
    answer = function(*arguments)
    if not isinstance(answer, np.ndarray):
        raise OutputError(f"the answer is no array of shape {shape}")
    matrix = np.asarray(answer, dtype=answer.dtype.newbyteorder("="))
    if by_rows:
        matrix = read_by_rows(matrix, shape)
    if matrix.shape != shape:
        raise OutputError(f"the answer has shape {matrix.shape}, expected {shape}")
    if matrix.dtype.str not in DTYPES:
        raise OutputError(f"the answer has elements of type {matrix.dtype}")
    return DTYPES.index(matrix.dtype.str), matrix.tobytes()


_HEAP_TYPE = 1 << 9
_PRINTABLE = (str, int, float, type(None))


class _RefusedError(Exception):
    """Strict mode does not run this program."""


_LOADS = (wire_format.LOAD, wire_format.LOAD_STRICT)
_OURS = {
    _RefusedError: "gate",
    NotOneFunctionError: "no_function",
    DecisionError: "invalid_decision",
    OutputError: "bad_output",
}


class _Silence:
    """Stands in for stdout and stderr, which no longer exist."""

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        pass


def silence() -> None:
    """Point the standard streams to nothing."""
    sys.stdout = sys.__stdout__ = sys.stderr = sys.__stderr__ = _Silence()  # type: ignore[misc, assignment]
    sys.stdin = sys.__stdin__ = None  # type: ignore[misc]


def serve() -> None:
    """Announce readiness, then answer one question after the other; ends with the data socket."""
    state: dict[str, Any] = {}
    _send(wire_format.ANSWER.pack(wire_format.READY, 0, 0, 0))
    while True:
        kind, length, nonce = wire_format.QUESTION.unpack(_receive(wire_format.QUESTION.size))
        payload = _receive(length)
        try:
            answer = _answer(state, kind, payload, nonce)
        except BaseException as error:  # noqa: BLE001 - the isolation boundary
            answer = _failure(error, kind, nonce)
        _send(answer)


def _answer(state: dict[str, Any], kind: int, payload: bytes, nonce: int) -> bytes:
    if kind in _LOADS:
        source = payload.decode("utf-8", "surrogatepass")
        if kind == wire_format.LOAD_STRICT and (reason := refusal(source)):
            raise _RefusedError(reason)
        state["program"] = Program(source)
        return wire_format.ANSWER.pack(
            wire_format.VALUE, 0, nonce, state["program"].fresh().__code__.co_argcount
        )
    program: Program = state["program"]
    arguments: list[Any] = wire_format.unpack_arguments(payload)
    if kind == wire_format.BEGIN:
        state["function"] = program.fresh()
        return wire_format.ANSWER.pack(wire_format.VALUE, 0, nonce, 0)
    if kind == wire_format.CHOICE:
        return wire_format.ANSWER.pack(wire_format.VALUE, 0, nonce, choose(state["function"], arguments))
    if kind == wire_format.TOURS:
        code, raw = 0, b"".join(build_tour(program.fresh(), distance) for distance in arguments)
    else:
        shape, *arguments = arguments
        by_rows = kind == wire_format.ROWS
        code, raw = fill_matrix(program.fresh(), tuple(shape.tolist()), arguments, by_rows)
    return wire_format.ANSWER.pack(wire_format.DATA, len(raw), nonce, code) + raw


def _failure(error: BaseException, kind: int, nonce: int) -> bytes:
    code, text = _describe(error, kind)
    raw = wire_format.printable(text).encode()
    return (
        wire_format.ANSWER.pack(wire_format.FAILED, len(raw), nonce, wire_format.FAILURES.index(code)) + raw
    )


def _describe(error: BaseException, kind: int) -> tuple[str, str]:
    if isinstance(error, MemoryError):
        return "memory" if kind not in _LOADS else "no_function", ""
    for kind_of_error, code in _OURS.items():
        if isinstance(error, kind_of_error):
            return code, str(error)
    text = f"{type(error).__name__}: {_text(error)}{_line(error)}"
    return "no_function" if kind in _LOADS else "exception", text


def _text(error: BaseException) -> str:
    # Printing runs the code of the exception and of what it holds: only what is all C is printed.
    if type(error).__flags__ & _HEAP_TYPE or any(type(part) not in _PRINTABLE for part in error.args):
        return ""
    return str(error)


def _line(error: BaseException) -> str:
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == FILE_NAME:
            line = trace.tb_lineno
        trace = trace.tb_next
    return f" (line {line})" if line else ""


def _receive(size: int) -> bytes:
    chunk = os.read(DATA_FD, size) if size else b""
    if len(chunk) == size:
        return chunk
    parts, have = [chunk], len(chunk)
    while have < size:
        if not parts[-1]:
            os._exit(0)
        parts.append(os.read(DATA_FD, min(size - have, 1 << 20)))
        have += len(parts[-1])
    return b"".join(parts)


def _send(raw: bytes) -> None:
    view = memoryview(raw)
    while view:
        view = view[os.write(DATA_FD, view) :]
