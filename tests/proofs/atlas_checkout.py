"""Functions and statements of a framework at a commit of its git directory, cut out and run by themselves."""

import __future__

import ast
import math
import os
import subprocess
import typing
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

COMMON = {"torch": torch, "np": np, "math": math, "defaultdict": defaultdict}


class Checkout:
    """The files of a git directory at one commit."""

    def __init__(self, directory: Path, commit: str) -> None:
        self.directory = directory
        self.commit = self._git("rev-parse", f"{commit}^{{commit}}").strip()

    def _git(self, *arguments: str) -> str:
        command = ["git", "-C", str(self.directory), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def tree(self, path: str) -> ast.Module:
        """The syntax tree of a file."""
        return ast.parse(self._git("show", f"{self.commit}:{path}"))

    def functions(self, path: str, *names: str, **space: Any) -> dict[str, Any]:
        """Functions and classes of a file by name, without their decorators, and what they are run with."""
        found = [node for node in ast.walk(self.tree(path)) if getattr(node, "name", None) in names]
        for node in found:
            node.decorator_list = []  # type: ignore[attr-defined]
        missing = set(names) - {node.name for node in found}  # type: ignore[attr-defined]
        if missing:
            raise SystemExit(f"{path} has no {', '.join(sorted(missing))} at {self.commit}: read it again")
        return execute(found, {**COMMON, **space})

    def statements(self, path: str, function: str, first: str, last: str) -> list[ast.stmt]:
        """The statements of a function from the first that begins with ``first`` to the first after that
        begins with ``last``, as they are unparsed."""
        for node in ast.walk(self.tree(path)):
            if getattr(node, "name", None) != function:
                continue
            for body in bodies(node):
                text = [ast.unparse(statement) for statement in body]
                starts = [place for place, line in enumerate(text) if line.startswith(first)]
                ends = [place for place, line in enumerate(text) if line.startswith(last)]
                if starts and [end for end in ends if end >= starts[0]]:
                    return list(body[starts[0] : min(end for end in ends if end >= starts[0]) + 1])
        raise SystemExit(
            f"{path}: {function} no longer goes from {first!r} to {last!r} at {self.commit}: read it again"
        )


def checkout_has(checkout: Checkout, path: str) -> bool:
    """Whether a file is there."""
    try:
        checkout.tree(path)
    except subprocess.CalledProcessError:
        return False
    return True


def some(checkout: Checkout, path: str, names: Sequence[str]) -> dict[str, Any]:
    """The functions of these names that a file has, with its module-level imports of os, re and typing."""
    tree = checkout.tree(path)
    there = [name for name in names if any(getattr(node, "name", None) == name for node in ast.walk(tree))]
    return checkout.functions(path, *there, os=os, Any=Any, Optional=typing.Optional)


def bodies(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """Every list of statements within a node."""
    for inner in ast.walk(node):
        for name in ("body", "orelse"):
            body = getattr(inner, name, None)
            if isinstance(body, list):
                yield body


def execute(nodes: Sequence[ast.AST], space: dict[str, Any]) -> dict[str, Any]:
    """Run statements in a namespace, annotations unread; returns the namespace."""
    module = ast.fix_missing_locations(ast.Module(body=list(nodes), type_ignores=[]))  # type: ignore[arg-type]
    flags = __future__.annotations.compiler_flag
    exec(compile(module, "<framework>", "exec", flags=flags), space)
    return space
