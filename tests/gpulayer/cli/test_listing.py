from __future__ import annotations

import json

from gpulayer.cli.listing import print_listing
from gpulayer.client.listings import age

RECORDS = [{"id": "j1", "name": "[bold]x[/bold]\x1b[31m", "note": None}, {"id": "j2", "name": "y" * 200, "note": "waits"}]


def test_json_is_one_object_a_line_and_whole(capsys):
    print_listing(RECORDS, ("id",), as_json=True, empty="none")
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == RECORDS


def test_a_table_shows_names_as_they_are_and_folds_nothing_in_a_pipe(capsys):
    print_listing(RECORDS, ("id", "name", "note"), as_json=False, empty="none")
    header, first, second = capsys.readouterr().out.splitlines()
    assert header.split() == ["id", "name", "note"]
    assert "[bold]x[/bold]\N{REPLACEMENT CHARACTER}[31m" in first
    assert "y" * 200 in second


def test_nothing_to_list_says_so_to_people_only(capsys):
    print_listing([], ("id",), as_json=False, empty="no jobs")
    assert capsys.readouterr().out == "no jobs\n"
    print_listing([], ("id",), as_json=True, empty="no jobs")
    assert capsys.readouterr().out == ""


def test_ages_are_short():
    assert [age(0, seconds) for seconds in (0, 59, 120, 7200, 200000)] == ["0 s", "59 s", "2 min", "2 h", "2 d"]
    assert age(None) == ""
    assert age(10, 5) == "0 s"
