"""Builders: from scheduled modules to artifacts a runner can load."""

from .builder import Builder, BuilderFuture, BuilderInput, BuilderResult, PyBuilder
from .local_builder import LocalBuilder

create = Builder.create

__all__ = ["Builder", "BuilderFuture", "BuilderInput", "BuilderResult", "LocalBuilder", "PyBuilder", "create"]
