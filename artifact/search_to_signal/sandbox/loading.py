"""A program as functions without a past: compiled once, executed anew for every instance."""

from collections.abc import Callable
from types import CodeType
from typing import Any

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
