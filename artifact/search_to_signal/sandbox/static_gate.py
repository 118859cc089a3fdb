"""The static gate of strict mode: readable reasons for a model, never a claim of security.

It runs in the locked worker before any of the candidate's code, because parsing hostile text can crash
the parser. Paper mode does without it: what the host would run is run, and the kernel's locks hold.
"""

import ast
import importlib
from collections.abc import Iterator
from functools import cache

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
