"""The canonical form of code: two programs that differ in layout, comments or docstrings are one."""

import ast
import hashlib
import warnings
from itertools import chain, dropwhile

# CPython's parser overflows the C stack on chains of some 100,000 operators. Unparsing recurses in
# Python, so without a depth limit its success would depend on how deep the caller already is.
_MOST_CHARACTERS = 50_000
_DEEPEST = 100


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


def sha256_text(text: str) -> str:
    """SHA-256 of a text's UTF-8 bytes; lone surrogates, which a tokenizer can emit, stay as they are."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def program_sha256(code: str) -> str:
    """SHA-256 of the canonical form."""
    return sha256_text(canonical(code))
