"""PyTorch: exported programs, FX graphs, TorchDynamo, and taking parameters out.

``torch`` is an optional extra and is imported only when an importer is called.
"""

from ..common import detach_params
from .dynamo import dynamo_capture_subgraphs, DynamoOptions, relax_dynamo, relaxish_backend
from .exported_program import from_exported_program
from .fx import from_fx
from .stateful import ExportedModel
from .table import supported_operators

__all__ = [
    "DynamoOptions", "ExportedModel", "detach_params", "dynamo_capture_subgraphs", "from_exported_program", "from_fx",
    "relax_dynamo", "relaxish_backend", "supported_operators",
]  # fmt: skip
