"""Code generators, one folder a target family; siblings never import each other."""

from ..support.entry_points import lazy_package as _lazy_package

__getattr__, __dir__ = _lazy_package(globals())
