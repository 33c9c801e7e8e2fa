"""Small utilities that scripts of the field import from here."""

from . import tvmjs, utils

__all__ = ["tvmjs", "utils"]
