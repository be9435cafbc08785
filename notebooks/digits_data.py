"""Handwritten digits, 8 × 8 pixels, from the file that scikit-learn's package brings along."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import TensorDataset


def load_digits_split(every: int = 5) -> tuple[TensorDataset, TensorDataset]:
    """The digits as (images, labels), pixels from 0 to 1 in double precision: those to train on, and every fifth one held back."""
    # The file alone: importing scikit-learn for it would cost each rank and the kernel a second.
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("The digits are part of scikit-learn: pip install scikit-learn")
    rows = np.loadtxt(Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz", delimiter=",", dtype=np.float64)
    images, labels = torch.from_numpy(rows[:, :-1] / 16.0), torch.from_numpy(rows[:, -1].astype(np.int64))
    held_back = torch.arange(len(labels)) % every == 0
    return TensorDataset(images[~held_back], labels[~held_back]), TensorDataset(images[held_back], labels[held_back])
