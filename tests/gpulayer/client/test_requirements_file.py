from __future__ import annotations

import pytest

from gpulayer.client.requirements_file import read_requirements, without_secrets
from gpulayer.errors import InvalidSpec


def read(folder, text, **others):
    for name, content in others.items():
        (folder / f"{name}.txt").write_text(content, encoding="utf-8")
    (folder / "requirements.txt").write_bytes(text.encode() if isinstance(text, str) else text)
    return read_requirements(folder / "requirements.txt")


def test_lines_travel_without_comments_and_other_files_stand_in_their_places(tmp_path):
    text = "# what we need\n\neinops>=0.8  # small\n-r more.txt\r\npandas[plot]==2.2 ; python_version > '3.10'\n--index-url https://example.org/a#b\n"
    assert read(tmp_path, text, more="--requirement=third.txt\ntqdm \\\n  ==4.66\n", third="rich\n") == (
        "einops>=0.8\nrich\ntqdm   ==4.66\npandas[plot]==2.2 ; python_version > '3.10'\n--index-url https://example.org/a#b\n"
    )


@pytest.mark.parametrize(
    "line",
    [
        "git+https://example.org/x.git@main#egg=x",
        "x @ https://example.org/x-1.whl",
        "/srv/wheels/x-1-py3-none-any.whl",
        "-f /srv/wheels",
        "--pre",
    ],
)
def test_what_the_worker_can_reach_travels_as_it_is(tmp_path, line):
    assert read(tmp_path, f"{line}\nrich\n") == f"{line}\nrich\n"


def test_a_mark_of_the_byte_order_is_no_part_of_a_name(tmp_path):
    assert read(tmp_path, b"\xef\xbb\xbfrich\n") == "rich\n"


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("-e .", "does not travel"),
        ("--editable=../mine", "does not travel"),
        ("./wheels/x-1.whl", "does not travel"),
        ("wheels/x", "does not travel"),
        ("x-1-py3-none-any.whl", "does not travel"),
        ("-c constraints.txt", "does not travel"),
        ("-e git+https://example.org/x.git#egg=x", "editable package does not travel"),
        ("-r https://example.org/more.txt", "is not read"),
        ("--find-links wheels", "means nothing"),
        ("-fwheels", "means nothing"),
    ],
)
def test_what_lies_on_this_machine_only_is_refused_with_its_line(tmp_path, line, what):
    with pytest.raises(InvalidSpec, match=what) as refused:
        read(tmp_path, f"rich\n{line}\n")
    assert refused.value.asked == f"{tmp_path}/requirements.txt line 2: {line}"
    assert refused.value.fix


@pytest.mark.parametrize("option", ["-c", "-e", "-r"])
def test_a_refusal_shows_no_password(tmp_path, option):
    with pytest.raises(InvalidSpec) as refused:
        read(tmp_path, f"{option} git+https://me:s3cret@example.org/x?token=s3cret#egg=x\n")
    assert refused.value.asked == f"{tmp_path}/requirements.txt line 1: {option} git+https://****@example.org/x?****#egg=x"
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("x @ https://a:b@c/x.whl ; python_version > '3'", "x @ https://****@c/x.whl ; python_version > '3'"),
        ("https://a:b@c@host/x", "https://****@host/x"),
        ("retries exceeded with url: /x.whl?sig=abc&se=1 (Caused", "retries exceeded with url: /x.whl?**** (Caused"),
        ("'http://t@h:1/x' and https://h/x@v1", "'http://****@h:1/x' and https://h/x@v1"),
        ("x==1  # why? a=b", "x==1  # why? a=b"),
    ],
)
def test_what_is_shown_is_without_what_lets_others_in(text, shown):
    assert without_secrets(text) == shown


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "asks for nothing"),
        ("# only words\n--pre\n", "asks for nothing"),
        (b"\xff\xfe", "no UTF-8"),
        ("a\0b", "no text"),
        ("r" * 300_000, "too large"),
    ],
)
def test_what_is_no_list_of_requirements_is_refused(tmp_path, text, what):
    with pytest.raises(InvalidSpec, match=what):
        read(tmp_path, text)


def test_a_file_that_is_not_there_or_names_itself_is_refused(tmp_path):
    with pytest.raises(InvalidSpec, match="can't be read") as refused:
        read_requirements(tmp_path / "none.txt")
    assert refused.value.found == f"No such file or directory: {tmp_path / 'none.txt'}"
    with pytest.raises(InvalidSpec, match="can't be read"):
        read(tmp_path, "-r gone.txt\n")
    with pytest.raises(InvalidSpec, match="names itself"):
        read(tmp_path, "-r requirements.txt\n")
    with pytest.raises(InvalidSpec, match="too many"):
        read(tmp_path, "-r more.txt\n" * 40, more="rich\n")
