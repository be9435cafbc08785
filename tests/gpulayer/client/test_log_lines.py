from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from support.client import chunk

from gpulayer.client.log_lines import LineAssembler


def texts(lines):
    return [line.text for line in lines]


def cut_into(data: bytes, size: int):
    return [chunk(data[at : at + size], offset=at, first_line=data[:at].count(b"\n")) for at in range(0, len(data), size)]


def test_characters_and_lines_may_be_cut_at_every_byte():
    text = "é漢🙂\nzwei\n\nlast"
    for size in (1, 2, 3, 5, 1000):
        assembler = LineAssembler()
        lines = assembler.feed(cut_into(text.encode(), size)) + assembler.finish()
        assert texts(lines) == ["é漢🙂", "zwei", "", "last"]
        assert [line.number for line in lines] == [1, 2, 3, 4]


def test_only_a_newline_ends_a_line():
    assembler = LineAssembler()
    assert texts(assembler.feed([chunk(" 10%\r 50%\u2028\x0c\x85\r\n".encode())])) == [" 10%\r 50%\u2028\x0c\x85\r"]


def test_bytes_that_are_no_text_are_replaced_not_lost():
    assembler = LineAssembler()
    assert texts(assembler.feed([chunk(b"a\xff\xfeb\n")])) == ["a\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}b"]
    assembler.feed([chunk(b"cut \xe6\xbc", rank=1)])
    assert texts(assembler.finish()) == ["cut \N{REPLACEMENT CHARACTER}"]


def test_streams_and_ranks_do_not_mix():
    assembler = LineAssembler()
    lines = assembler.feed(
        [
            chunk(b"zero ", rank=0),
            chunk(b"one\n", rank=1),
            chunk(b"oops\n", rank=0, stream="stderr"),
            chunk(b"zero\n", rank=0, offset=5),
            chunk(b"launcher\n", rank=None),
            chunk(b"other launcher\n", rank=None, node=1),
        ]
    )
    assert [(line.rank, line.stream, line.text) for line in lines] == [
        (1, "stdout", "one"),
        (0, "stderr", "oops"),
        (0, "stdout", "zero zero"),
        (None, "stdout", "launcher"),
        (None, "stdout", "other launcher"),
    ]


def test_a_new_attempt_ends_the_last_line_of_the_former_and_counts_anew():
    assembler = LineAssembler()
    lines = assembler.feed([chunk(b"first\nunfinished"), chunk(b"again\n", attempt=2)])
    assert [(line.number, line.text) for line in lines] == [(1, "first"), (2, "unfinished"), (1, "again")]
    assert assembler.finish() == []


def test_a_line_of_64_mb_in_chunks_takes_linear_time():
    assembler = LineAssembler()
    piece = b"x" * 65536
    for at in range(1024):
        assembler.feed([chunk(piece, offset=at * 65536)])
    (line,) = assembler.feed([chunk(b"\n")])
    assert len(line.text) == 64 * 1024 * 1024


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet=st.sampled_from("aé漢🙂\n\r\t "), max_size=60), st.integers(1, 7))
def test_any_text_cut_anywhere_is_the_same_text(text, size):
    assembler = LineAssembler()
    lines = assembler.feed(cut_into(text.encode(), size)) + assembler.finish()
    expected = text.split("\n")
    assert texts(lines) == (expected if expected[-1] else expected[:-1])
