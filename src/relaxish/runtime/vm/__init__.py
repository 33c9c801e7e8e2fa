"""The virtual machine: executables, the machine that runs them, and reports of where their time goes."""

from ...support.entry_points import lazy_package

__all__ = ["VMInstrumentReturnKind", "VirtualMachine"]

__getattr__, __dir__ = lazy_package(globals())
