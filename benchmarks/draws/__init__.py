"""Random workloads for ``anywhere.py``: families of programs as users write them, with sizes nobody chose."""

from .base import Draw, Family
from .convolutions import CONVOLUTIONS
from .movement import MOVEMENT
from .products import PRODUCTS
from .quantised import QUANTISED
from .recurrent import RECURRENT
from .reductions import REDUCTIONS

__all__ = ["FAMILIES", "Draw", "draw"]

#: All families by name; each is drawn equally often.
FAMILIES: dict[str, Family] = {
    f.__name__: f for f in (*PRODUCTS, *CONVOLUTIONS, *REDUCTIONS, *MOVEMENT, *RECURRENT, *QUANTISED)
}


def draw(seed: int, index: int, family: str | None = None) -> Draw:
    """Draw ``index`` of a run: the same for the same seed, whatever was drawn before."""
    from numpy.random import default_rng

    rng = default_rng([seed, index])
    names = list(FAMILIES)
    name = family or names[index % len(names)]
    made = FAMILIES[name](rng)
    made.family = name
    return made
