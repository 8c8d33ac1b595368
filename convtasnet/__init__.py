"""Conv-TasNet speech separation: model, losses, training and inference."""

from convtasnet.inference import separate
from convtasnet.model import ConvTasNet

__all__ = ["ConvTasNet", "separate"]
