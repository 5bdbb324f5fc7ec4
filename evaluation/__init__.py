"""Evaluation of PICME: methods compared on the same holes, metrics, calibration on drawn faces, figures and training curves. Never imported by `picme_sdk`."""
