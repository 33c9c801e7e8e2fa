"""Small utilities that scripts of the field import from here."""

from ..support.entry_points import lazy_package as _lazy_package
from . import tvmjs, utils

__all__ = ["tvmjs", "utils"]

__getattr__, __dir__ = _lazy_package(globals())  # the others load on first use
