"""The layers by themselves; tests/training/test_model.py has the network."""

import torch

from training.layers import pull_push


def test_holes_are_filled_from_their_surroundings() -> None:
    """A picture that is red on the left and blue on the right, with a hole over each half's middle."""
    colours = torch.zeros(1, 3, 16, 16)
    colours[:, 0, :, :8], colours[:, 2, :, 8:] = 1, 1
    seen = torch.ones(1, 1, 16, 16)
    seen[..., 4:12, 2:6] = seen[..., 4:12, 10:14] = 0
    filled = pull_push(colours * seen, seen)
    assert (filled[0, 0, 6:10, 3:5] > 0.8).all()
    assert (filled[0, 2, 6:10, 11:13] > 0.8).all()
    torch.testing.assert_close(filled * seen, colours * seen, atol=0.06, rtol=0)
    assert torch.isfinite(pull_push(colours * 0, seen * 0)).all()
