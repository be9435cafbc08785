"""Changes to libraries travel with whatever uses the library."""

from __future__ import annotations

import pytest
from support.notebook import export_after, text_of


@pytest.mark.parametrize(
    ("cells", "body", "kept"),
    [
        (["import torch\nx = torch.ones(1)", "k = 2\ntorch.Tensor.go = lambda self: k", "k = 3"], "print(x.go())", ["Tensor.go", "k = 3"]),
        (["import torch.nn as nn\nsetattr(nn.Module, 'go', 1)"], "import torch\nprint(torch.nn.Module.go)", ["setattr"]),
        (["from decimal import getcontext\ngetcontext().prec = 12"], "from decimal import Decimal\nprint(Decimal(1) / 3)", ["prec = 12"]),
        (["import torch as t\nt.set_num_threads(2)"], "from torch import nn\nnn.Linear(1, 1)", ["set_num_threads"]),
        (["import helper\nhelper.LIMIT = 3"], "import other_helper", ["LIMIT = 3"]),
    ],
)
def test_a_patch_travels(cells: list[str], body: str, kept: list[str]) -> None:
    main = text_of(export_after(cells, body))
    assert all(text in main for text in kept)


@pytest.mark.parametrize(
    ("cells", "body"),
    [
        (["import json\njson.patched = 1"], "print(1)"),
        (["import json\njson.patched = 1"], "import torch\ntorch.ones(1)"),
        (["import pandas as pd\npd.options.display.max_rows = 9"], "import helper"),
    ],
)
def test_a_patch_of_what_nobody_uses_stays(cells: list[str], body: str) -> None:
    assert "patched" not in text_of(export_after(cells, body))
    assert "max_rows" not in text_of(export_after(cells, body))


def test_a_method_of_an_item_of_a_module_is_read_like_any_other() -> None:
    text_of(export_after(["import json", "json[0].set_level(1)"], "print(json)"))
