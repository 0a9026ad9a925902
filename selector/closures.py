"""Trees and expressions as closures: what the hot path calls in place of walking records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from selector import derive
from selector.nodes import FALSE, Node
from selector.vocabulary import UNKNOWN

__all__ = ["Test", "Value", "compile_expression", "compile_node"]

#: Of the true atoms, whether a tree holds.
Test = Callable[[int], bool]
#: Of the values of all axes and the true atoms, an expression's value.
Value = Callable[[Sequence[Any], int], Any]


def compile_node(node: Node) -> Test:
    """A tree as a function of the true atoms."""
    bits = node.bits
    kids = tuple(compile_node(k) for k in node.kids)
    if node.conj:
        if not kids:
            return lambda atoms: atoms & bits == bits
        if len(kids) == 1:
            only = kids[0]
            return lambda atoms: atoms & bits == bits and only(atoms)
        return lambda atoms: atoms & bits == bits and all(k(atoms) for k in kids)
    if not kids:
        return lambda atoms: atoms & bits != 0
    return lambda atoms: atoms & bits != 0 or any(k(atoms) for k in kids)


def compile_expression(expr: derive.Expr) -> Value:
    """An expression as a function; the same as its ``value``."""
    if isinstance(expr, derive.Case):
        return _case(expr)
    if isinstance(expr, derive.Literal):
        constant = expr.constant
        return lambda values, atoms: constant
    if isinstance(expr, derive.Ref):
        axis = expr.axis
        return lambda values, atoms: values[axis]
    return expr.value


def _case(expr: derive.Case) -> Value:
    """From the last entry to the first: each a test, what it gives, and the rest."""
    rest = compile_expression(expr.otherwise)
    for entry in reversed(expr.entries):
        result = compile_expression(entry.result)
        if entry.possible == entry.definite:  # nothing here can be unknown
            rest = _either(compile_node(entry.definite), result, rest)
        elif entry.definite == FALSE:
            rest = _perhaps(compile_node(entry.possible), rest)
        else:
            rest = _either(compile_node(entry.definite), result, _perhaps(compile_node(entry.possible), rest))
    return rest


def _either(holds: Test, result: Value, rest: Value) -> Value:
    return lambda values, atoms: result(values, atoms) if holds(atoms) else rest(values, atoms)


def _perhaps(possible: Test, rest: Value) -> Value:
    return lambda values, atoms: UNKNOWN if possible(atoms) else rest(values, atoms)
