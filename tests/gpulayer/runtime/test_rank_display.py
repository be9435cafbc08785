"""What a rank displays, from its code to the agent: which forms it has, what is bounded, and who shows nothing."""

from __future__ import annotations

import json
import sys

import pytest
from support.runtime import rank_argv, start_task

from gpulayer import protocol
from gpulayer.runtime import rank_bundle, rank_display


def run(keeper, folder, source, **options):
    options = options or {"argv": rank_argv()}
    task = start_task(keeper, folder, {"main.py": source}, **options)
    result = task.result()
    assert result.state == "succeeded", task.events.output
    return task


def displayed(task):
    """What was displayed, with the bytes of its files."""
    found = []
    for rank, kind, data in task.events.records:
        if kind == "display":
            assert rank == 0
            found.append(
                {
                    **data,
                    "data": {
                        mime: form["text"] if "text" in form else (task.workspace / "displays" / form["file"]).read_bytes()
                        for mime, form in data["data"].items()
                    },
                }
            )
    return found


def test_the_limits_are_the_protocols():
    assert rank_display._MOST_INLINE_BYTES == protocol.MOST_INLINE_BYTES
    assert rank_display._LARGEST_BYTES == protocol.LARGEST_DISPLAY_BYTES
    assert rank_display._MOST_DISPLAYS == protocol.MOST_DISPLAYS
    assert rank_display._MOST_MIME_TYPES == protocol.MOST_MIME_TYPES
    assert rank_display._LARGEST_METADATA_BYTES == protocol.LARGEST_METADATA_BYTES
    assert rank_display._LONGEST_ID == protocol.LONGEST_DISPLAY_ID


def test_every_form_that_a_value_has_comes_in_order_and_not_in_the_log(keeper, tmp_path):
    source = """
        from gpulayer.runtime.rank_display import display
        class All:
            def __repr__(self): return "all"
            def _repr_html_(self): return "<b>all</b>"
            def _repr_markdown_(self): return "**all**"
            def _repr_latex_(self): return "$all$"
            def _repr_svg_(self): return "<svg/>"
            def _repr_png_(self): return b"\\x89PNG", {"width": 3}
            def _repr_json_(self): return {"all": [1]}
        class Bundle:
            def __repr__(self): return "bundle"
            def _repr_mimebundle_(self, include=None, exclude=None):
                return {"application/vnd.some+json": {"a": 1}, "application/vnd.jupyter.widget-view+json": {"model_id": "x"}}, {"m": 1}
            def _repr_html_(self): raise NotImplementedError
        class Own:
            def _ipython_display_(self): display("its own")
        display(All(), 1)
        display(Bundle())
        display(Own())
        display({"text/plain": "raw", "image/png": "iVBORw=="}, raw=True, metadata={"image/png": {"width": 1}})
        display(All(), include=["text/html"])
        display(All)
        """
    task = run(keeper, tmp_path, source)
    first, number, bundle, own, raw, only, of_class = displayed(task)
    assert first["data"] == {
        "text/plain": "all",
        "text/html": "<b>all</b>",
        "text/markdown": "**all**",
        "text/latex": "$all$",
        "image/svg+xml": "<svg/>",
        "image/png": b"\x89PNG",
        "application/json": '{"all": [1]}',
    }
    assert first["metadata"] == {"image/png": {"width": 3}}
    assert number["data"] == {"text/plain": "1"}
    assert bundle["data"] == {"text/plain": "bundle", "application/vnd.some+json": '{"a": 1}'}
    assert bundle["metadata"] == {"m": 1}
    assert own["data"] == {"text/plain": "'its own'"}
    assert raw["data"] == {"text/plain": "raw", "image/png": b"\x89PNG"[:4]}
    assert raw["metadata"] == {"image/png": {"width": 1}}
    assert only["data"] == {"text/plain": "all", "text/html": "<b>all</b>"}
    assert set(of_class["data"]) == {"text/plain"}
    assert task.events.output == {}


def test_what_is_updated_and_cleared_says_so(keeper, tmp_path):
    source = """
        from gpulayer.runtime.rank_display import clear_output, display, update_display
        handle = display(1, display_id=True)
        handle.update(2)
        update_display(3, display_id=handle.display_id)
        display(4, clear=True)
        clear_output(wait=True)
        display(5)
        clear_output()
        try:
            display(6, update=True)
        except TypeError as error:
            print(error)
        assert display(7) is None
        """
    task = run(keeper, tmp_path, source)
    shown = displayed(task)
    assert [(one["data"].get("text/plain"), one["update"], one["clear"]) for one in shown] == [
        ("1", False, False),
        ("2", True, False),
        ("3", True, False),
        ("4", False, True),
        ("5", False, True),
        (None, False, True),
        ("7", False, False),
    ]
    assert len({one["display_id"] for one in shown[:3]}) == 1
    assert task.events.text() == "display_id required for update_display\n"


def test_what_cannot_be_shown_costs_its_traceback_only(keeper, tmp_path):
    source = """
        from gpulayer.runtime.rank_display import display
        class Bad:
            def __repr__(self): return "bad"
            def _repr_html_(self): raise ValueError("no html")
        class Worse:
            def __repr__(self): raise KeyError("no repr")
        class Worst:
            def _ipython_display_(self): raise OSError("no display")
        display(Bad())
        display(Worse())
        display(Worst())
        display({"image/png": "no base64!", "text/html": 3, "text/plain": "raw"}, raw=True)
        print("goes on")
        """
    task = run(keeper, tmp_path, source)
    texts = [one["data"]["text/plain"] for one in displayed(task)]
    assert texts[0] == "bad"
    assert texts[1] == "<__main__.Worse object that can't be shown>"
    assert "__main__.Worst object" in texts[2]
    assert texts[3] == "raw"
    assert task.events.text() == "goes on\n"
    errors = task.events.text(stream="stderr")
    assert errors.count("Traceback") == 3
    for said in ("no html", "no repr", "no display", "display: text/html", "display: image/png"):
        assert said in errors
    assert "rank_bundle" not in errors.split("no html")[0]


def test_ranks_other_than_0_print_the_text(keeper, tmp_path):
    source = """
        import sys
        from gpulayer.runtime.rank_display import display
        display([1])
        exec(compile("2 + 2", "cell.py", "single"))
        """
    task = run(keeper, tmp_path, source, script="main.py", devices=2, launcher="direct")
    assert [one["data"] for one in displayed(task)] == [{"text/plain": "[1]"}, {"text/plain": "4"}]
    assert task.events.text(0) == ""
    assert task.events.text(1) == "[1]\n"


def test_large_forms_are_files_and_what_is_too_large_is_left_out_and_said(keeper, tmp_path):
    source = """
        from gpulayer.runtime.rank_display import display
        display({"text/plain": "t", "text/html": "h" * 5000}, raw=True)
        display({"text/plain": "t", "text/html": "h" * 10_000_001, "image/png": b"p"}, raw=True)
        display("x" * 70_000)
        """
    task = run(keeper, tmp_path, source)
    first, second, third = displayed(task)
    assert first["data"] == {"text/plain": "t", "text/html": b"h" * 5000}
    assert second["data"] == {"text/plain": "t", "image/png": b"p"}
    assert third["data"]["text/plain"].endswith(b"\n\xe2\x80\xa6 and 4,466 more characters")
    assert task.events.text(stream="stderr") == "display: text/html of 10.0 MB is left out; what is shown at once may have 10 MB.\n"


def test_only_so_many_are_shown_at_once(keeper, tmp_path):
    source = """
        from gpulayer.runtime.rank_display import clear_output, display
        for number in range(300):
            display(number)
        clear_output(wait=True)
        display("last")
        """
    task = run(keeper, tmp_path, source)
    assert [one["data"]["text/plain"] for one in displayed(task)] == [*map(str, range(200)), "'last'"]
    assert task.events.text(stream="stderr") == "display: 200 are shown, and more are left out; clear_output() makes room.\n"


def test_a_plain_command_displays_logs_and_reports_as_well(keeper, tmp_path, start):
    source = """
        import gpulayer
        from gpulayer.runtime.rank_display import display
        display(1)
        gpulayer.log(step=1, loss=0.5)
        gpulayer.progress(1, 2, "half")
        """
    task = run(keeper, tmp_path, source, argv=["python", "main.py"])
    assert displayed(task)[0]["data"] == {"text/plain": "1"}
    assert (0, "metrics", {"step": 1, "values": {"loss": 0.5}}) in task.events.records
    assert (0, "progress", {"done": 1.0, "total": 2.0, "text": "half"}) in task.events.records


def test_the_last_expressions_value_is_shown_unless_it_is_none(keeper, tmp_path):
    source = """
        for text in ("6 * 7", "None", "print('x')"):
            exec(compile(text, "cell.py", "single"))
        """
    task = run(keeper, tmp_path, source)
    assert [one["data"] for one in displayed(task)] == [{"text/plain": "42"}]
    assert task.events.text() == "x\n"


def test_ipythons_display_ends_in_the_same_place(keeper, tmp_path):
    source = """
        from IPython.display import HTML, Markdown, clear_output, display
        from IPython import display as module
        handle = display(HTML("<i>html</i>"), display_id="a")
        handle.update(Markdown("*md*"))
        module.display(1)
        clear_output()
        """
    task = run(keeper, tmp_path, source)
    html, markdown, one, cleared = displayed(task)
    assert html["data"]["text/html"] == "<i>html</i>"
    assert (markdown["data"]["text/markdown"], markdown["update"], markdown["display_id"]) == ("*md*", True, "a")
    assert one["data"] == {"text/plain": "1"}
    assert cleared["clear"]
    assert task.events.output == {}


def test_data_frames_and_images_have_their_forms(keeper, tmp_path):
    source = """
        import pandas, PIL.Image
        from gpulayer.runtime.rank_display import display
        display(pandas.DataFrame({"a": [1, 2]}))
        display(PIL.Image.new("RGB", (4, 4)))
        """
    table, image = displayed(run(keeper, tmp_path, source))
    assert set(table["data"]) == {"text/plain", "text/html"}
    assert "<table" in str(table["data"]["text/html"])
    assert set(image["data"]) == {"text/plain", "image/png"}
    assert image["data"]["image/png"].startswith(b"\x89PNG")


@pytest.mark.parametrize("kind", ["tqdm.notebook", "tqdm.auto"])
def test_bars_of_notebooks_are_drawn_as_text(keeper, tmp_path, kind):
    source = f"""
        import sys
        for name in ("ipywidgets", "IPython"):
            sys.modules[name] = None  # not installed
        from {kind} import tqdm, trange
        for _ in tqdm(range(3), desc="outer", display=True) if "{kind}" == "tqdm.notebook" else tqdm(range(3), desc="outer"):
            for _ in trange(2, desc="inner"):
                pass
        """
    task = run(keeper, tmp_path, source)
    drawn = task.events.text(stream="stderr")
    assert "outer: 100%" in drawn
    assert "inner: 100%" in drawn


def test_bars_draw_with_control_sequences_though_the_output_is_a_pipe(keeper, tmp_path):
    source = """
        import sys
        import tqdm, rich.progress
        for _ in tqdm.tqdm(range(3), desc="outer", mininterval=0):
            for _ in tqdm.tqdm(range(2), desc="inner", mininterval=0, leave=False):
                pass
        for _ in rich.progress.track(range(3), description="rich"):
            pass
        """
    task = run(keeper, tmp_path, source)
    assert "\r" in task.events.text(stream="stderr")
    assert "\x1b[A" in task.events.text(stream="stderr")
    drawn = task.events.text()
    assert "\x1b[?25l" in drawn  # rich hides the cursor where it redraws
    assert "rich" in drawn
    assert "100%" in drawn


def test_questions_are_an_error_at_once(keeper, tmp_path):
    for number, question in enumerate(("input('?')", "breakpoint()")):
        task = start_task(keeper, tmp_path / str(number), {"main.py": f"{question}\nprint('went' + ' on')"}, argv=rank_argv())
        result = task.result(30)
        assert result.state == "failed", question
        assert "went on" not in task.events.text()
        assert result.failure.error.type.rpartition(".")[2] in ("EOFError", "BdbQuit")


def test_a_rank_that_displays_nothing_loads_nothing_for_it(keeper, tmp_path):
    source = "import sys, json; print(json.dumps([name for name in sys.modules if name.startswith('gpulayer.runtime.rank_')]))"
    loaded = json.loads(run(keeper, tmp_path, source).events.text())
    assert "gpulayer.runtime.rank_hooks" in loaded
    assert not {"rank_display", "rank_bundle", "rank_figures", "rank_progress"} & {name.rpartition(".")[2] for name in loaded}


def test_by_hand_values_are_printed(capsys, monkeypatch):
    monkeypatch.delenv("GPULAYER_CHANNEL", raising=False)
    handle = rank_display.display([1], display_id="a")
    assert handle.display_id == "a"
    handle.update("b")
    rank_display.clear_output()
    rank_display.display({"image/png": b"x"}, raw=True)
    assert capsys.readouterr().out == "[1]\n'b'\n<image/png>\n"


def test_an_object_that_has_every_name_is_shown_as_text():
    class Anything:
        def __getattr__(self, name):
            return lambda *args, **options: "anything"

    assert set(rank_bundle.forms_of(Anything())[0]) == {"text/plain"}
    assert "rank_figures" not in sys.modules
