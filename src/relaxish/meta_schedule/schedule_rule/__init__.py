"""Schedule rules: what turns a program into sketches."""

from .add_rfactor import AddRFactor
from .auto_bind import AutoBind
from .cross_thread_reduction import CrossThreadReduction
from .hopper import MultiLevelTilingHopper
from .inline import ApplyCustomRule, AutoInline, InlineConstantScalars
from .multi_level_tiling import MultiLevelTiling, MultiLevelTilingWithIntrin, ReuseType
from .root_rules import ParallelizeVectorizeUnroll, RandomComputeLocation
from .schedule_rule import PyScheduleRule, ScheduleRule
from .tensor_core import MultiLevelTilingTensorCore
from .wide_vector import MultiLevelTilingWideVector

create = ScheduleRule.create

__all__ = [
    "AddRFactor",
    "ApplyCustomRule",
    "AutoBind",
    "AutoInline",
    "CrossThreadReduction",
    "InlineConstantScalars",
    "MultiLevelTiling",
    "MultiLevelTilingHopper",
    "MultiLevelTilingTensorCore",
    "MultiLevelTilingWideVector",
    "MultiLevelTilingWithIntrin",
    "ParallelizeVectorizeUnroll",
    "PyScheduleRule",
    "RandomComputeLocation",
    "ReuseType",
    "ScheduleRule",
    "create",
]
