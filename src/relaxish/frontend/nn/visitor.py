"""Rewriting trees of modules, e.g. to swap layers for quantised ones."""

from __future__ import annotations

from typing import Any

from .core import Effect, Module, ModuleDict, ModuleList, Parameter

__all__ = ["Mutator"]


class Mutator:
    """Walks a module tree and puts what the ``visit_*`` methods return in the place of what they were given.

    >>> from relaxish.frontend import nn
    >>> class Halve(nn.Mutator):
    ...     def visit_module(self, name, node):
    ...         if isinstance(node, nn.Linear):
    ...             return nn.Linear(node.in_features, node.out_features // 2)
    ...         return super().visit_module(name, node)
    >>> class Net(nn.Module):
    ...     def __init__(self):
    ...         self.proj = nn.Linear(8, 4)
    >>> Halve().visit("", Net()).proj.out_features
    2
    """

    def visit_module(self, name: str, node: Module) -> Module:
        """Visit a module that stands in another one; subclasses replace it, or go on into it with :meth:`visit`."""
        made: Module = self.visit(name, node)
        return made

    def visit_effect(self, name: str, node: Effect) -> Effect:
        """Visit an effect."""
        return node

    def visit_param(self, name: str, node: Parameter) -> Parameter:
        """Visit a parameter."""
        return node

    def visit_modulelist(self, name: str, node: ModuleList) -> Module:
        """Visit a list of modules."""
        made: Module = self.visit(name, node)
        return made

    def visit_moduledict(self, name: str, node: ModuleDict) -> Module:
        """Visit a dictionary of modules."""
        made: Module = self.visit(name, node)
        return made

    def visit(self, name: str, node: Any) -> Any:
        """Visit everything that stands in ``node``, a module, list or dictionary called ``name``; returns the node."""
        prefix = f"{name}." if name else ""
        match node:
            case ModuleList():
                for index, value in enumerate(node):
                    node[index] = self._visit_child(f"{prefix}{index}", value)
            case ModuleDict():
                for key, value in list(node.items()):
                    node[key] = self._visit_child(f"{prefix}{key}", value)
            case Module():
                for key, value in list(node.__dict__.items()):
                    made = self._visit_child(f"{prefix}{key}", value)
                    if made is not value:
                        setattr(node, key, made)
        return node

    def _visit_child(self, name: str, value: Any) -> Any:
        match value:
            case ModuleList():
                return self.visit_modulelist(name, value)
            case ModuleDict():
                return self.visit_moduledict(name, value)
            case Module():
                return self.visit_module(name, value)
            case Effect():
                return self.visit_effect(name, value)
            case Parameter():
                return self.visit_param(name, value)
            case list() | tuple():
                items = [self._visit_child(f"{name}.{i}", v) for i, v in enumerate(value)]
                return value if all(a is b for a, b in zip(items, value)) else type(value)(items)
            case dict():
                made = {k: self._visit_child(f"{name}.{k}", v) for k, v in value.items()}
                return value if all(made[k] is v for k, v in value.items()) else made
        return value
