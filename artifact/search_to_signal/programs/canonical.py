"""The canonical form of code: two programs that differ in layout, comments or docstrings are one."""

import ast
import hashlib
import re
import warnings
from functools import lru_cache
from itertools import chain, dropwhile

# CPython's parser overflows the C stack on chains of some 100,000 operators. Unparsing recurses in
# Python, so without a depth limit its success would depend on how deep the caller already is.
_MOST_CHARACTERS = 50_000
_DEEPEST = 100
_NUMBER = re.compile(r"(?<![\w.])(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_WORD = re.compile(r"[^\W\d]\w*")
_STRINGS_AND_COMMENTS = re.compile(
    r'"""[\s\S]*?"""|\'\'\'[\s\S]*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|#[^\n]*'
)


def _levels(tree: ast.AST) -> list[list[ast.AST]]:
    """The nodes of a tree by depth, without recursion."""
    levels = [[tree]]
    while levels[-1]:
        levels.append([child for node in levels[-1] for child in ast.iter_child_nodes(node)])
    return levels


def _is_bare_string(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _drop_docstring(node: ast.AST) -> None:
    """Drop every leading string: dropping only the first would make a docstring of the second."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        body = list(dropwhile(_is_bare_string, node.body))
        node.body = body if body or isinstance(node, ast.Module) else [ast.Pass()]


def canonical(code: str) -> str:
    """Return ``code`` without layout, comments and docstrings; names stay as they are.

    Code that does not parse, or is too long or too deep to parse safely, is only stripped. Never raises
    on any text.
    """
    text = code.strip()
    if len(text) > _MOST_CHARACTERS:
        return text
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
        levels = _levels(tree)
        if len(levels) > _DEEPEST:
            return text
        for node in chain.from_iterable(levels):
            _drop_docstring(node)
        return ast.unparse(tree)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return text


def differ_in_numbers(first: str, second: str) -> bool:
    """Whether two programs are one when every number in their canonical forms is written as 0."""
    # Canonical forms take long, and programs of other names are told apart without.
    return _words(first) == _words(second) and without_numbers(first) == without_numbers(second)


# A heuristic is compared with all its parents, and with all its children.
@lru_cache(1 << 12)
def _words(code: str) -> list[str]:
    return _WORD.findall(_NUMBER.sub("", _STRINGS_AND_COMMENTS.sub("", code)))


@lru_cache(1 << 12)
def without_numbers(code: str) -> str:
    """The canonical form with every number written as 0."""
    return _NUMBER.sub("0", canonical(code))


def sha256_text(text: str) -> str:
    """SHA-256 of a text's UTF-8 bytes; lone surrogates, which a tokenizer can emit, stay as they are."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def program_sha256(code: str) -> str:
    """SHA-256 of the canonical form."""
    return sha256_text(canonical(code))
