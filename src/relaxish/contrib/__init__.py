"""Small utilities that scripts of the field import from here."""

from . import utils

__all__ = ["utils"]
