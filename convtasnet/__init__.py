"""Conv-TasNet speech separation: model, losses, training and inference."""

from convtasnet.inference import separate
from convtasnet.model import ConvTasNet
from convtasnet.streaming import StreamingSeparator

__all__ = ["ConvTasNet", "StreamingSeparator", "separate"]
