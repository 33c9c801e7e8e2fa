"""Training: losses, optimizers, and the passes and the class that put a training loop together."""

from __future__ import annotations

from . import loss, optimizer, utils
from .setup_trainer import SetupTrainer
from .trainer import Trainer
from .utils import AppendLoss

__all__ = ["AppendLoss", "SetupTrainer", "Trainer", "loss", "optimizer", "utils"]
