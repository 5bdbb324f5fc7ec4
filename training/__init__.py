"""Training of PICME: model, losses, masks, data and the training command. Never imported by `picme_sdk`."""
