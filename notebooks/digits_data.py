"""Handwritten digits as tensors: scikit-learn's 1,797 images of 8 × 8 pixels, of which every fifth is held back."""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch.utils.data import TensorDataset


def load_digits_split() -> tuple[TensorDataset, TensorDataset]:
    """The data to train on and the data to test with: the same two sets on every call, pixels from 0 to 1."""
    digits = load_digits()
    images = torch.tensor(digits.data, dtype=torch.float32) / 16.0
    labels = torch.tensor(digits.target, dtype=torch.int64)
    held_back = torch.arange(len(labels)) % 5 == 0
    return TensorDataset(images[~held_back], labels[~held_back]), TensorDataset(images[held_back], labels[held_back])
