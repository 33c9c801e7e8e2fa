"""Task schedulers: which task gets the next batch of trials."""

from .task_scheduler import GradientBased, PyTaskScheduler, RoundRobin, TaskRecord, TaskScheduler

create = TaskScheduler.create

__all__ = ["GradientBased", "PyTaskScheduler", "RoundRobin", "TaskRecord", "TaskScheduler", "create"]
