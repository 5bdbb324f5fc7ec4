"""Training and evaluation of PICME: model, losses, masks, data, the training command, metrics and figures. Never imported by `picme_sdk`."""
