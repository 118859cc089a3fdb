"""The static gate of strict mode: readable reasons for a model, never a claim of security.

It runs in the locked worker before any of the candidate's code, because parsing hostile text can crash
the parser. Paper mode does without it: what the host would run is run, and the kernel's locks hold.
"""

import ast
from collections.abc import Iterator

from search_to_signal.evaluation.strict_vocabulary import (
    FORBIDDEN_NAMES,
    MODULES,
    NODES,
    SOURCE_LIMIT,
    allowed_attributes,
)

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
