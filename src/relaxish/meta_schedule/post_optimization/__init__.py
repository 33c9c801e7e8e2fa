"""Going on from the best records of a search, one decision at a time."""

from .droplet_search import DropletSearch, t_test
from .post_opt import Droplet, PostOpt
from .space import Space

__all__ = ["Droplet", "DropletSearch", "PostOpt", "Space", "t_test"]
