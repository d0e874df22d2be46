"""How an error is shown: the place, what came, the call stack, and the same as data."""

from __future__ import annotations

import pytest

from sexpgpu.schemas.errors import Frame, SexpgpuError, Source, Span

MINE = Source("net.sx", "(def x 1)\n(def y\n  (linear 9 4))\n")
PRELUDE = Source("prelude.sx", "(defmodel linear ()\n  (matmul x w))\n", library=True)


def test_an_error_without_a_place() -> None:
    error = SexpgpuError("E-USAGE-001", "no such thing", help="try another", exit_code=2)
    assert str(error) == "error[E-USAGE-001]: no such thing"
    assert error.render() == "error[E-USAGE-001]: no such thing\n = help: try another"
    assert error.as_data() == {
        "code": "E-USAGE-001",
        "message": "no such thing",
        "help": "try another",
    }


def test_a_code_must_be_explained() -> None:
    with pytest.raises(LookupError):
        SexpgpuError("E-NONE-999", "no such code")


def test_an_error_at_a_place() -> None:
    error = SexpgpuError("E-FILE-001", "no such file", place="a.npz", came="nothing")
    assert error.render() == ("error[E-FILE-001]: no such file\n --> a.npz\n = came: nothing")
    assert error.as_data()["place"] == "a.npz"


def test_an_error_in_a_source() -> None:
    error = SexpgpuError(
        "E-TYPE-001",
        "wrong",
        span=Span(MINE, 3, 3, 12),
        came="one\ntwo",
        expected="three",
        notes=["first", "second"],
    )
    error.frames = [Frame("inner", Span(MINE, 1, 1)), Frame("outer", None)]
    assert error.render() == (
        "error[E-TYPE-001]: wrong\n"
        " --> net.sx:3:3\n"
        "  |\n"
        "3 |   (linear 9 4))\n"
        "  |   ^^^^^^^^^^^^\n"
        "  = came: one\n"
        "          two\n"
        "  = expected: three\n"
        "  = note: first\n"
        "  = note: second\n"
        "    in inner, called at net.sx:1:1\n"
        "    in outer"
    )
    assert error.as_data() == {
        "code": "E-TYPE-001",
        "message": "wrong",
        "file": "net.sx",
        "line": 3,
        "column": 3,
        "came": "one\ntwo",
        "expected": "three",
        "notes": ["first", "second"],
        "stack": [{"name": "inner", "at": "net.sx:1:1"}, {"name": "outer", "at": None}],
    }


def inside(*frames: Frame) -> SexpgpuError:
    error = SexpgpuError("E-SHAPE-001", "wrong", span=Span(PRELUDE, 2, 3, 12), notes=["more"])
    error.frames = list(frames)
    return error


def test_what_goes_wrong_in_a_layer_is_shown_where_the_user_calls_it() -> None:
    call = Span(MINE, 3, 3, 12)
    error = inside(Frame("linear", Span(PRELUDE, 1, 1)), Frame("mlp", call), Frame("net", None))
    assert error.user_span is call
    assert error.render() == (
        "error[E-SHAPE-001]: wrong\n"
        " --> net.sx:3:3\n"
        "  |\n"
        "3 |   (linear 9 4))\n"
        "  |   ^^^^^^^^^^^^\n"
        "  = note: it went wrong in `linear`, at prelude.sx:2:3: (matmul x w)\n"
        "  = note: more\n"
        "    in linear, called at prelude.sx:1:1\n"
        "    in mlp, called at net.sx:3:3\n"
        "    in net"
    )
    assert error.as_data()["file"] == "net.sx"
    assert error.as_data()["inside"] == "prelude.sx:2:3"
    assert error.notes == ["more"]


def test_a_layer_that_no_user_called_is_shown_itself() -> None:
    error = inside(Frame("linear", None))
    assert error.user_span is error.span
    assert " --> prelude.sx:2:3" in error.render()
    assert "inside" not in error.as_data()
    assert inside().render().startswith("error[E-SHAPE-001]: wrong\n --> prelude.sx:2:3")


def test_an_error_without_a_place_of_its_own_is_shown_at_the_innermost_call() -> None:
    error = SexpgpuError("E-TYPE-001", "wrong", place="elsewhere")
    error.frames = [Frame("f", None), Frame("g", Span(MINE, 1, 2, 3))]
    assert "--> net.sx:1:2" in error.render()
    assert "inside" not in error.as_data()


def test_a_long_line_is_shown_in_part() -> None:
    source = Source("long.sx", "a" * 500 + "(bad)" + "b" * 500)
    shown = SexpgpuError("E-TYPE-001", "wrong", span=Span(source, 1, 501, 5)).render().split("\n")
    column = shown[4].index("^")
    assert len(shown[3]) < 170
    assert shown[3][column : column + 5] == "(bad)"
    assert shown[4].count("^") == 5


def test_a_span_past_the_end_of_its_line_has_a_caret() -> None:
    error = SexpgpuError("E-READ-001", "wrong", span=Span(MINE, 9, 4, 7))
    assert error.render().split("\n")[-1] == "  |    ^"


def test_a_deep_stack_is_shown_in_part() -> None:
    error = SexpgpuError("E-LIMIT-001", "too deep")
    error.frames = [Frame(f"f{i}", None) for i in range(1000)]
    lines = error.render().split("\n")
    assert len(lines) == 14
    assert lines[7] == "   … 988 more"
    assert lines[-1] == "   in f999"


def test_lines_end_as_they_may() -> None:
    source = Source("a.sx", "one\r\ntwo\tthree")
    assert (source.line(1), source.line(0), source.line(3)) == ("one", "", "")
    shown = SexpgpuError("E-TYPE-001", "wrong", span=Span(source, 2, 5, 5)).render()
    assert "2 | two three\n  |     ^^^^^" in shown
