"""PyTorch: exported programs (``torch.export``) and their parameters.

``torch`` is an optional extra and is imported only when an importer is called.
"""

from .exported_program import from_exported_program
from .table import supported_operators

__all__ = ["from_exported_program", "supported_operators"]
