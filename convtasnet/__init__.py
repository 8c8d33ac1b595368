"""Conv-TasNet speech separation: model, losses, training and inference."""
