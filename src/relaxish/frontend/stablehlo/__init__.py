"""StableHLO programs (what JAX lowers to), read from their text."""

from .importer import from_stablehlo, supported_operators

__all__ = ["from_stablehlo", "supported_operators"]
