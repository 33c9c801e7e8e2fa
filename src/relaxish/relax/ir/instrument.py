"""Pass instruments for graph programs."""

from __future__ import annotations


from ...ir.instrument import PassInstrument
from ...ir.module import IRModule
from ...ir.transform import PassInfo
from ..analysis import find_ill_formed

__all__ = ["WellFormedInstrument"]

# Passes whose very task is to bring a program into order.
_REPAIRS = frozenset(("Normalize", "ResolveGlobals"))


class WellFormedInstrument(PassInstrument):
    """Checks the program before and after every pass but those that repair it.

    Raises AssertionError, which names the pass, the side and what is wrong; the program is shown.

    >>> from relaxish import IRModule, relax, transform
    >>> from relaxish.relax.ir.instrument import WellFormedInstrument
    >>> with transform.PassContext(instruments=[WellFormedInstrument()]):
    ...     mod = relax.transform.CanonicalizeBindings()(IRModule())
    """

    def __init__(self, check_struct_info: bool = True, validate_before_transform: bool = True) -> None:
        """``check_struct_info``: missing struct info is a fault; ``validate_before_transform``: check inputs, too."""
        self.skip_pass = sorted(_REPAIRS)
        self.check_struct_info = check_struct_info
        self.validate_before_transform = validate_before_transform

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Check what the pass is given."""
        if self.validate_before_transform:
            self._check(mod, info.name, "Before")

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Check what the pass made."""
        self._check(mod, info.name, "After")

    def _check(self, mod: IRModule, name: str, side: str) -> None:
        if name in self.skip_pass:
            return
        problems = find_ill_formed(mod, self.check_struct_info)
        if problems:
            mod.show(name=f"{side}{name}")
            raise AssertionError(f"the program is malformed {side.lower()} pass {name}: " + "; ".join(problems))
