"""Schedule rules: what turns a program into sketches."""

from .add_rfactor import AddRFactor
from .inline import ApplyCustomRule, AutoInline, InlineConstantScalars
from .multi_level_tiling import MultiLevelTiling, MultiLevelTilingWithIntrin, ReuseType
from .root_rules import ParallelizeVectorizeUnroll, RandomComputeLocation
from .schedule_rule import PyScheduleRule, ScheduleRule

create = ScheduleRule.create

__all__ = [
    "AddRFactor", "ApplyCustomRule", "AutoInline", "InlineConstantScalars", "MultiLevelTiling",
    "MultiLevelTilingWithIntrin", "ParallelizeVectorizeUnroll", "PyScheduleRule", "RandomComputeLocation",
    "ReuseType", "ScheduleRule", "create",
]
