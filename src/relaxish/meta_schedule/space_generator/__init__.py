"""Space generators: from a module to its sketches."""

from .space_generator import PostOrderApply, PySpaceGenerator, ScheduleFn, SpaceGenerator, SpaceGeneratorUnion

create = SpaceGenerator.create

__all__ = ["PostOrderApply", "PySpaceGenerator", "ScheduleFn", "SpaceGenerator", "SpaceGeneratorUnion", "create"]
