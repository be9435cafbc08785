"""Values as expressions: they give the same value with the files beside them and without GPUlayer, and read as a person would write."""

from __future__ import annotations

import ast
import subprocess
import sys

import numpy as np
import pytest
from support import plain_values
from support.plain_values import KINDS, MOST_BYTES, Settings, example, name_of, same

from gpulayer.plain_data.expression import LONGEST_LITERAL, expression_of
from gpulayer.plain_data.writing import write


def _made(value, name="x"):
    return expression_of(write(value, name, most_bytes=MOST_BYTES, class_name=name_of), name, folder="sent")


def _lay_out(files, folder):
    for name, data in files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_an_expression(kind, tmp_path):
    text, files = _made(example(kind))
    _lay_out(files, tmp_path)
    classes = {name: getattr(plain_values, name) for name in ("Settings", "Fixed", "Derived", "TakesBoth", "Doubles")}
    made = eval(text, {**classes, "__file__": str(tmp_path / "main.py")})
    assert same(example(kind), made)
    assert {name.partition(".")[2] for name in files} <= {"json", "npy", "safetensors", "arrow", "py", "1.npy", "1.arrow", "2.arrow"}
    assert max(map(len, text.splitlines())) <= 360
    assert "gpulayer" not in text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        ({"lr": 0.1, "sizes": [1, 2], "name": "é"}, "{'lr': 0.1, 'sizes': [1, 2], 'name': 'é'}"),
        ((1,), "(1,)"),
        (set(), "set()"),
        (frozenset({1}), "frozenset({1})"),
        (float("inf"), 'float("inf")'),
        (np.float32(0.5), '__import__("numpy").float32(0.5)'),
        (np.bool_(True), '__import__("numpy").bool_(True)'),
        (Settings(0.1, [1]), "Settings(rate=0.1, sizes=[1])"),
        (
            np.zeros(3),
            '__import__("numpy").load(__import__("pathlib").Path(__file__).with_name("sent").joinpath("x.npy"), allow_pickle=False)',
        ),
    ],
)
def test_small_values_read_as_a_person_would_write_them(value, text):
    assert _made(value)[0] == text


def test_long_literals_are_laid_out_in_lines():
    text, files = _made({"sizes": list(range(100)), "name": "a" * 50, "inner": {"more": ["word"] * 30}})
    assert not files
    assert ast.literal_eval(text)["sizes"] == list(range(100))
    assert max(map(len, text.splitlines())) <= 120
    assert len(text.splitlines()) < 20


def test_what_is_longer_is_a_file_that_a_person_can_open():
    value = [f"word {number}" for number in range(LONGEST_LITERAL)]
    text, files = _made(value)
    assert list(files) == ["sent/x.json"]
    assert ast.literal_eval(files["sent/x.json"].decode()) == value
    assert '__import__("json").loads' in text


def test_it_needs_no_gpulayer_and_calls_no_constructor(tmp_path):
    text, files = _made([plain_values.Fixed(3), list(range(3000))])
    _lay_out(files, tmp_path)
    (tmp_path / "main.py").write_text(
        "import dataclasses, sys\n"
        "sys.modules['gpulayer'] = None\n"
        "@dataclasses.dataclass(frozen=True, slots=True)\n"
        "class Fixed:\n"
        "    number: int\n"
        "    more: object = None\n"
        "    def __post_init__(self): raise AssertionError\n"
        f"x = {text}\n"
        "print(x[0], len(x[1]))\n"
    )
    done = subprocess.run([sys.executable, "main.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "Fixed(number=6, more=None) 3000\n", done.stderr
