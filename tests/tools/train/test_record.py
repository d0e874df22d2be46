"""Records: the lines that they become, and what is refused as one."""

from __future__ import annotations

import io
import json
import math

import hypothesis
import hypothesis.strategies as st
import pytest

from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.tools.train.record import Record, read_lines, read_record, write_record


def test_a_line_is_what_the_format_says() -> None:
    record = Record(20, "train", 1.25049, {"loss": 3.2, "tokens": 512})
    line = b'{"step":20,"kind":"train","time":1.25,"loss":3.2,"tokens":512}\n'
    assert write_record(record) == line


def test_every_json_reader_reads_what_is_no_number() -> None:
    line = write_record(Record(1, "train", 0, {"a": math.nan, "b": math.inf, "c": -math.inf}))

    def refuse(constant: str) -> float:
        raise AssertionError(constant)

    content = json.loads(line, parse_constant=refuse)
    assert [content[name] for name in "abc"] == ["nan", "inf", "-inf"]
    values = read_record(line, "log").values
    assert math.isnan(values["a"])
    assert (values["b"], values["c"]) == (math.inf, -math.inf)


names = st.text(st.characters(exclude_categories=["Cs"])).filter(
    lambda name: not name.startswith("metric:")
)


@hypothesis.given(
    st.integers(0, 2**62),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.dictionaries(
        names | st.sampled_from(["step", "kind", "time"]),
        st.floats(allow_nan=False) | st.integers(-(2**62), 2**62),
    ),
)
@hypothesis.settings(max_examples=25)
def test_records_come_back_as_they_were(step: int, kind: str, values: dict[str, float]) -> None:
    line = write_record(Record(step, kind, 1.5, values))
    assert line.count(b"\n") == 1
    assert read_record(line[:-1], "log") == Record(step, kind, 1.5, values)


@pytest.mark.parametrize(
    ("line", "came"),
    [
        (b"", "truncated"),
        (b"[]", "array"),
        (b'{"step":1', "truncated"),
        (b'{"kind":"train","time":1}', "under `step`"),
        (b'{"step":-1,"kind":"train","time":1}', "under `step`"),
        (b'{"step":1.5,"kind":"train","time":1}', "under `step`"),
        (b'{"step":1,"kind":3,"time":1}', "under `kind`"),
        (b'{"step":1,"kind":"train","time":"soon"}', "under `time`"),
        (b'{"step":1,"kind":"train","time":1,"loss":"low"}', "text under `loss`"),
        (b'{"step":1,"kind":"train","time":1,"loss":null}', "null"),
        (b'{"step":1,"kind":"train","time":1,"loss":NaN}', "malformed"),
        (b'{"step":1,"kind":"train","time":1,"loss":1e999}', "range"),
        (b'{"step":1,"kind":"\xff","time":1}', "UTF-8"),
        (b'{"step":1,"kind":"train","time":1,"\xff":1}', "UTF-8"),
        (b"\x00" * 40, "malformed"),
        (b"[" * 100_000, "array"),
    ],
)
def test_what_is_no_record_is_refused(line: bytes, came: str) -> None:
    with pytest.raises(SexpgpuError) as caught:
        read_record(line, "log, line 3")
    assert caught.value.code == "E-JSON-001"
    assert caught.value.place == "log, line 3"
    assert came in str(caught.value.came)


def test_lines_are_whole() -> None:
    assert list(read_lines(io.BytesIO(b"a\n\nbc\nd"), "log")) == [b"a\n", b"\n", b"bc\n"]
    long = b"x" * (1 << 19)
    assert list(read_lines(io.BytesIO(long + b"\n" + long + b"\ny"), "log")) == [long + b"\n"] * 2


def test_a_line_without_an_end_takes_no_memory() -> None:
    class Endless:
        count = 0

        def read(self, size: int) -> bytes:
            self.count += size
            return b"\0" * size

    source = Endless()
    with pytest.raises(SexpgpuError, match="no record") as caught:
        list(read_lines(source, "log"))
    assert caught.value.place == "log, line 1"
    assert source.count <= 4 << 20
