"""Training of PICME: model, losses, masks, data, checkpoints and the training command. Never imported by `picme_sdk`."""
