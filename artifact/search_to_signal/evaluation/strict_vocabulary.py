"""The words of strict mode: which syntax, modules and names a heuristic may use."""

import importlib
from functools import cache


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
