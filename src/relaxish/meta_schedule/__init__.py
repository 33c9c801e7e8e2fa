"""MetaSchedule: search for fast schedules by measuring candidates on the real machine."""

from ..support.entry_points import lazy_package
from . import (
    arg_info,
    builder,
    cost_model,
    database,
    feature_extractor,
    measure_callback,
    mutator,
    postproc,
    runner,
    schedule,
    schedule_rule,
    search_strategy,
    space_generator,
    task_scheduler,
)
from .builder import Builder
from .cost_model import CostModel
from .database import Database
from .extracted_task import ExtractedTask
from .feature_extractor import FeatureExtractor
from .measure_callback import MeasureCallback
from .mutator import Mutator
from .postproc import Postproc
from .profiler import Profiler
from .runner import Runner
from .schedule_rule import ScheduleRule
from .search_strategy import MeasureCandidate, SearchStrategy
from .space_generator import SpaceGenerator
from .task_scheduler import TaskScheduler
from .tir_integration import compile_tir, tune_tir
from .trace_apply import schedule_using_anchor_trace
from .tune import tune_tasks
from .tune_context import TuneContext
from .utils import derived_object


def is_meta_schedule_enabled() -> bool:
    """Whether a database is in scope, so that builds use tuned schedules."""
    return Database.current() is not None


__getattr__, __dir__ = lazy_package(globals())  # graph-level entry points load on first use

__all__ = [
    "Builder",
    "CostModel",
    "Database",
    "ExtractedTask",
    "FeatureExtractor",
    "MeasureCallback",
    "MeasureCandidate",
    "Mutator",
    "Postproc",
    "Profiler",
    "Runner",
    "ScheduleRule",
    "SearchStrategy",
    "SpaceGenerator",
    "TaskScheduler",
    "TuneContext",
    "arg_info",
    "builder",
    "compile_tir",
    "cost_model",
    "database",
    "derived_object",
    "feature_extractor",
    "is_meta_schedule_enabled",
    "measure_callback",
    "mutator",
    "postproc",
    "runner",
    "schedule",
    "schedule_rule",
    "schedule_using_anchor_trace",
    "search_strategy",
    "space_generator",
    "task_scheduler",
    "tune_tasks",
    "tune_tir",
]
