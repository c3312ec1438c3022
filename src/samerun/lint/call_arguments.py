"""What a call gives to which parameter, and constants."""

from __future__ import annotations

import ast

from samerun.lint.source_index import Function


def parameter_for(call: ast.Call, argument: ast.AST, function: Function) -> ast.arg | None:
    """The parameter of a function or method that takes an argument of a call; None behind a star."""
    parameters = [*function.args.posonlyargs, *function.args.args]
    if parameters and parameters[0].arg in ("self", "cls"):
        parameters = parameters[1:]
    for number, one in enumerate(call.args):
        if isinstance(one, ast.Starred):
            break
        if one is argument:
            return parameters[number] if number < len(parameters) else None
    for keyword in call.keywords:
        if keyword.value is argument or keyword is argument:
            every = [*parameters, *function.args.kwonlyargs]
            return next((one for one in every if one.arg == keyword.arg), None)
    return None


def argument_for(call: ast.Call, function: Function, name: str) -> ast.expr | None:
    """The argument of a call that a parameter gets; None where it is left out."""
    for argument in [*call.args, *(keyword.value for keyword in call.keywords)]:
        parameter = parameter_for(call, argument, function)
        if parameter is not None and parameter.arg == name:
            return argument
    return None


def default_of(function: Function, name: str) -> ast.expr | None:
    """The default of a parameter; None if it has none."""
    positional = [*function.args.posonlyargs, *function.args.args]
    for parameter, default in zip(positional[::-1], function.args.defaults[::-1], strict=False):
        if parameter.arg == name:
            return default
    for parameter, keyword_default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
        if parameter.arg == name:
            return keyword_default
    return None


def keyword_value(call: ast.Call, *names: str) -> ast.expr | None:
    """The value of the first keyword argument that has one of these names."""
    return next((keyword.value for keyword in call.keywords if keyword.arg in names), None)


def is_constant(node: ast.AST | None, value: object) -> bool:
    """Whether a node is this constant, of this type."""
    return isinstance(node, ast.Constant) and type(node.value) is type(value) and node.value == value


def has_star(call: ast.Call) -> bool:
    """Whether arguments are unpacked into a call, so that what it gets is not written there."""
    return any(isinstance(one, ast.Starred) for one in call.args) or any(k.arg is None for k in call.keywords)
