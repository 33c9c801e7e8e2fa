"""Log files of a tuning run: one for the scheduler, one per task, under ``<work_dir>/logs``."""

from __future__ import annotations

import logging
import os
import re
from logging import Logger
from collections.abc import Callable

from ..support.log import get_logger as _channel

__all__ = ["get_logger", "get_logger_from_config", "get_loggers_from_work_dir", "get_logging_func", "get_scheduler_log"]

_FORMAT = "%(asctime)s [%(levelname)s] %(message)s"


def get_logger(name: str) -> Logger:
    """A logger below the ``meta_schedule`` channel."""
    return _channel(f"meta_schedule.{name}" if name else "meta_schedule")


def get_logger_from_config(name: str, path: str) -> Logger:
    """A logger that also writes to the file ``path``."""
    logger = get_logger(name)
    logger.setLevel(logging.DEBUG)
    wanted = os.path.abspath(path)
    for handler in list(logger.handlers):
        if isinstance(handler, logging.FileHandler):
            if handler.baseFilename == wanted:
                return logger
            logger.removeHandler(handler)
            handler.close()
    file_handler = logging.FileHandler(wanted, mode="a", delay=True)
    file_handler.setFormatter(logging.Formatter(_FORMAT, "%Y-%m-%d %H:%M:%S"))
    logger.addHandler(file_handler)
    return logger


def _log_dir(work_dir: str) -> str:
    path = os.path.join(work_dir, "logs")
    os.makedirs(path, exist_ok=True)
    return path


def get_loggers_from_work_dir(work_dir: str, task_names: list[str]) -> list[Logger]:
    """One logger per task, each with its own file in ``<work_dir>/logs``."""
    folder = _log_dir(work_dir)
    loggers = []
    for index, name in enumerate(task_names):
        slug = re.sub(r"[^\w.-]", "_", name)
        path = os.path.join(folder, f"task_{index:0{len(str(max(1, len(task_names) - 1)))}d}_{slug}.log")
        loggers.append(get_logger_from_config(f"task_{index:02d}_{slug.replace('.', '_')}", path))
    return loggers


def get_scheduler_log(work_dir: str) -> Logger:
    """The logger of the task scheduler."""
    return get_logger_from_config("task_scheduler", os.path.join(_log_dir(work_dir), "task_scheduler.log"))


def get_logging_func(logger: Logger | None) -> Callable[[int, str], None]:
    """A function ``(level, message)`` writing to ``logger``."""
    target = logger or get_logger("")

    def write(level: int, message: str) -> None:
        target.log(level, message)

    return write
