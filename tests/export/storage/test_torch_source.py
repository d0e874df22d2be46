"""PyTorch's checkpoints: what torch reads of them, and what is refused before memory is taken."""

from __future__ import annotations

import os
import pickle
import struct
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexpgpu.export.graph.types import Array, DType
from sexpgpu.export.storage.sources import open_source
from sexpgpu.schemas.errors import SexpgpuError
from support.torch_files import (
    MAGIC,
    REBUILD,
    call,
    items,
    mapping,
    named,
    number,
    program,
    storage,
    tensor,
    text,
    write_arrays,
    write_sequence,
    write_zip,
)

NUMBERS = np.arange(12, dtype=np.float32)
STORED = {"0": NUMBERS.tobytes()}
HELD = storage("FloatStorage", "0", 12)
WHOLE = tensor(HELD, [3, 4], [4, 1])


def opened(path: Path) -> dict[str, Array]:
    source = open_source(path)
    return {key: source.stored(key) for key in source.keys()}  # noqa: SIM118


def refusal(path: Path) -> SexpgpuError:
    with pytest.raises(SexpgpuError) as caught:
        opened(path)
    assert caught.value.code == "E-LOAD-004"
    caught.value.render().encode()
    return caught.value


def test_containers_are_paths(tmp_path: Path) -> None:
    body = mapping(
        {
            "step": number(7),
            "model": mapping({"a.w": WHOLE, "list": b"](" + WHOLE + b"K\1" + WHOLE + b"e"}),
            "pair": items(b"N", WHOLE),
            "ordered": call("collections.OrderedDict", b"](" + items(text("x"), WHOLE) + b"e"),
            "parameter": call("torch._utils._rebuild_parameter", WHOLE, b"\x88", b"}"),
        }
    )
    found = opened(write_zip(tmp_path / "w.pt", body, STORED))
    assert list(found) == [
        *("model.a.w", "model.list.0", "model.list.2", "pair.1", "ordered.x", "parameter")
    ]
    for array in found.values():
        np.testing.assert_array_equal(array, NUMBERS.reshape(3, 4))


@pytest.mark.parametrize("ending", [".pt", ".pth", ".bin", ".ckpt"])
def test_one_tensor_alone(tmp_path: Path, ending: str) -> None:
    source = open_source(write_zip(tmp_path / f"w{ending}", WHOLE, STORED))
    assert source.describe(None) == ("f32", (3, 4))
    np.testing.assert_array_equal(source.read(None, DType.F64), NUMBERS.reshape(3, 4))
    assert source.memory("tensor") == 0


@st.composite
def views(draw: Any) -> tuple[list[int], list[int], int]:
    """Shapes, strides and an offset, many of which fit into twelve numbers."""
    rank = draw(st.integers(0, 3))
    shape = draw(st.lists(st.integers(0, 5), min_size=rank, max_size=rank))
    strides = draw(st.lists(st.integers(0, 5), min_size=rank, max_size=rank))
    return shape, strides, draw(st.integers(0, 13))


@given(views())
def test_any_view_of_a_storage(tmp_path_factory: Any, view: Any) -> None:
    """Those that stay within it are NumPy's; others are refused."""
    shape, strides, offset = view
    path = tmp_path_factory.mktemp("views") / "w.pt"
    write_zip(path, mapping({"w": tensor(HELD, shape, strides, offset)}), STORED)
    reach = offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    if 0 not in shape and reach >= 12:
        assert "past the end of its storage" in refusal(path).message
        return
    found = open_source(path).read("w", DType.F32)
    assert found.shape == tuple(shape)
    for index in np.ndindex(*shape):
        assert found[index] == NUMBERS[offset + sum(np.multiply(index, strides))]


def test_the_format_before_1_6(tmp_path: Path) -> None:
    body = mapping({"w": WHOLE, "half": tensor(storage("HalfStorage", "h", 2), [2], [1])})
    halves = np.array([1.5, -2], np.float16)
    stored = {"h": (2, halves.tobytes()), "0": (12, NUMBERS.tobytes())}
    found = opened(write_sequence(tmp_path / "w.pt", body, stored))
    np.testing.assert_array_equal(found["w"], NUMBERS.reshape(3, 4))
    np.testing.assert_array_equal(found["half"], halves)


def test_what_other_objects_hold_is_found(tmp_path: Path) -> None:
    """A module that was saved whole has the paths of its state dict."""
    inner = call("copyreg._reconstructor", named("my.Layer")) + mapping(
        {"_parameters": mapping({"w": WHOLE}), "_buffers": mapping({"mean": WHOLE})}
    )
    body = named("my.Net") + b")\x81" + mapping({"_modules": mapping({"0": inner + b"b"})}) + b"b"
    assert list(opened(write_zip(tmp_path / "w.pt", body, STORED))) == ["0.w", "0.mean"]


class _Runs:
    """A pickle of this calls os.system."""

    def __init__(self, line: str) -> None:
        self.line = line

    def __reduce__(self) -> Any:
        return os.system, (self.line,)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_nothing_is_run(tmp_path: Path, protocol: int) -> None:
    line = f"touch {tmp_path / 'it-ran'}"
    attack = pickle.dumps(_Runs(line), protocol)
    with zipfile.ZipFile(tmp_path / "alone.pt", "w") as archive:
        archive.writestr("archive/data.pkl", attack)
    error = refusal(tmp_path / "alone.pt")
    assert error.message.endswith("it is made by `posix.system`, which is not called")
    assert error.help is not None
    # beside tensors it is passed over
    start = 2 if protocol < 4 else 11  # without the version and the frame
    body = mapping({"evil": attack[start:-1], "w": WHOLE})
    assert list(opened(write_zip(tmp_path / "beside.pt", body, STORED))) == ["w"]
    assert not (tmp_path / "it-ran").exists()


HUGE = 2**62

REFUSED = {
    "negative stride": (tensor(HELD, [3, 4], [4, -1]), "below 0"),
    "negative size": (tensor(HELD, [-3, 4], [4, 1]), "below 0"),
    "negative offset": (tensor(HELD, [3], [1], -1), "below 0"),
    "offset": (tensor(HELD, [1], [1], 12), "past the end of its storage"),
    "huge offset": (tensor(HELD, [1], [1], HUGE), "past the end of its storage"),
    "size": (tensor(HELD, [13], [1]), "past the end of its storage"),
    "stride": (tensor(HELD, [3, 4], [5, 1]), "past the end of its storage"),
    "repeated": (tensor(HELD, [1 << 40], [0]), "repeats its elements"),
    "empty and huge": (tensor(HELD, [0, HUGE], [1, 1]), "too large"),
    "beyond 63 bits": (tensor(HELD, [2**63], [1]), "too large"),
    "a boolean size": (call(REBUILD, HELD, number(0), items(b"\x88"), items(b"\x88")), "below 0"),
    "ranks": (tensor(HELD, [3, 4], [1]), "2 sizes and 1 strides"),
    "rank": (tensor(HELD, [1] * 65, [1] * 65), "65 sizes"),
    "no storage": (call(REBUILD, number(1), number(0), items(), items()), "another way"),
    "no size": (call(REBUILD, HELD, number(0), number(3), items()), "another way"),
    "count": (tensor(storage("FloatStorage", "0", 13), [1], [1]), "fewer than it claims"),
    "huge count": (tensor(storage("FloatStorage", "0", HUGE), [1], [1]), "too large"),
    "negative count": (tensor(storage("FloatStorage", "0", -1), [1], [1]), "too large"),
    "missing storage": (tensor(storage("FloatStorage", "1", 12), [1], [1]), "missing"),
    "path as a storage": (tensor(storage("FloatStorage", "../data.pkl", 1), [1], [1]), "missing"),
    "kind": (tensor(storage("OddStorage", "0", 3), [1], [1]), "unknown kind OddStorage"),
    "a view": (items(*[text("storage"), named("torch.FloatStorage"), text("0"), text("cpu"),
                       number(12), items(text("v"), number(0), number(1))]) + b"Q", "view of"),
    "an odd storage": (text("0") + b"Q", "another way"),
    "two of a path": (mapping({"a.b": WHOLE, "a": mapping({"b": WHOLE})}), "the same path"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused(tmp_path: Path, case: str) -> None:
    body, reason = REFUSED[case]
    if not case.startswith("two"):
        body = mapping({"w": body})
    error = refusal(write_zip(tmp_path / "w.pt", body, STORED))
    assert reason in error.message
    assert error.help is not None
    assert "weights_only=True" in error.help


def test_members_that_are_compressed_or_reach_past_the_end(tmp_path: Path) -> None:
    path = tmp_path / "w.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", program(b"]" * 10**6))
    assert "is compressed" in refusal(path).message
    write_zip(path, WHOLE, STORED)
    content = bytearray(path.read_bytes())
    at = content.rfind(b"PK\1\2")  # the last member of the directory, which is the storage
    content[at + 20 : at + 28] = struct.pack("<II", 1 << 30, 1 << 30)
    path.write_bytes(content)
    assert "past the end" in refusal(path).message


@pytest.mark.parametrize(
    ("others", "reason"),
    [
        ({"byteorder": b"big"}, "byte order"),
        ({"data/0": b"twice"}, "the same name"),
        ({"more/data.pkl": b""}, "no single data.pkl"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_zip_files_of_another_kind(tmp_path: Path, others: Any, reason: str) -> None:
    assert reason in refusal(write_zip(tmp_path / "w.pt", WHOLE, STORED, others)).message


def test_other_files_say_how_to_convert_them(tmp_path: Path) -> None:
    path = tmp_path / "pytorch_model.bin"
    for content, reason in (
        (b"\x80\x02}q\x00.           ", "neither a zip file"),
        (b"PK\x03\x04 and so on, a zip file it is not", "no whole zip file"),
        (b"", "too short"),
        (MAGIC, "truncated"),
        (MAGIC + program(number(1)), "truncated"),
    ):
        path.write_bytes(content)
        assert reason in refusal(path).message


@pytest.mark.parametrize(
    ("stored", "little", "reason"),
    [
        ({"0": (12, bytes(47))}, b"\x88", "truncated"),
        ({"0": (2**61, bytes(48))}, b"\x88", "truncated"),
        ({"0": (-1, bytes(48))}, b"\x88", "truncated"),
        ({"0": (11, bytes(48))}, b"\x88", "fewer than it claims"),
        ({"0": (12, bytes(48)), "9": (1, b"1")}, b"\x88", "does not name"),
        ({}, b"\x88", "missing"),
        ({"0": (12, bytes(48))}, b"\x89", "byte order"),
    ],
)
def test_old_files_whose_storages_do_not_fit(
    tmp_path: Path, stored: Any, little: bytes, reason: str
) -> None:
    assert reason in refusal(write_sequence(tmp_path / "w.pt", WHOLE, stored, little)).message


def test_containers_that_hold_themselves_and_each_other(tmp_path: Path) -> None:
    loop = b"}q\0" + text("me") + b"h\0s"
    assert "nested 64 deep" in refusal(write_zip(tmp_path / "a.pt", loop, {})).message
    # twenty lists, each of which holds the one before ten times
    doubled = b"]q\0" + b"".join(
        b"](" + b"h" + bytes([n]) + (b"h" + bytes([n])) * 9 + b"eq" + bytes([n + 1])
        for n in range(20)
    )
    start = time.monotonic()
    assert "more than" in refusal(write_zip(tmp_path / "b.pt", doubled, {})).message
    assert time.monotonic() - start < 60  # and not the years that 10^20 values take


@given(st.data())
def test_damaged_files_are_refused_or_read(tmp_path_factory: Any, data: Any) -> None:
    """No byte that is another, and no end, makes anything but an error of ours."""
    path = tmp_path_factory.mktemp("damaged") / "w.pt"
    if data.draw(st.booleans()):
        write_arrays(path, {"w": NUMBERS, "b": NUMBERS.astype(np.float16)})
    else:
        write_sequence(path, mapping({"w": WHOLE}), {"0": (12, NUMBERS.tobytes())})
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    codes = ["E-LOAD-004"]
    try:
        opened(path)
    except SexpgpuError as error:
        codes.append(error.code)
    assert set(codes) == {"E-LOAD-004"}


def test_what_torch_writes_is_what_torch_reads(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    content = {
        "base": base,
        "turned": base.T,
        "part": base[1:3, ::2],
        "wide": base[:1].expand(5, 6),
        "brain": base.bfloat16(),
        "none": torch.zeros(0, 3),
        "scalar": torch.tensor(3, dtype=torch.int16),
        "flags": torch.tensor([True, False]),
        "module": torch.nn.LSTM(3, 2).state_dict(),
        "parameter": torch.nn.Parameter(base),
        "noted": torch.nn.Parameter(base + 1),
        "special": (base + 2).as_subclass(type("Special", (torch.Tensor,), {})),
    }
    content["noted"].note = "an attribute"
    globals()["Special"] = type(content["special"])  # where pickle looks for it
    for name, old in (("new.pt", False), ("old.pt", True)):
        torch.save(content, tmp_path / name, _use_new_zipfile_serialization=not old)
        found = opened(tmp_path / name)
        flat = {k: v for k, v in content.items() if k != "module"}
        flat |= {f"module.{k}": v for k, v in content["module"].items()}
        assert sorted(found) == sorted(flat)
        for key, value in flat.items():
            array = found[key].astype(np.float32) if key == "brain" else found[key]
            expected = value.float() if key == "brain" else value.as_subclass(torch.Tensor)
            np.testing.assert_array_equal(array, expected.detach().numpy())
    newer = {"f8": base.to(torch.float8_e4m3fn), "u16": torch.arange(3).to(torch.uint16)}
    torch.save(newer, tmp_path / "newer.pt")
    source = open_source(tmp_path / "newer.pt")
    assert [source.describe(k)[0] for k in newer] == ["f8-e4m3", "u16"]
    np.testing.assert_array_equal(source.read("f8", DType.F32), newer["f8"].float().numpy())
    np.testing.assert_array_equal(source.read("u16", DType.I32), [0, 1, 2])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_module_that_torch_saved_whole(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    made = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    torch.save(made, tmp_path / "w.pt")
    torch.jit.save(torch.jit.script(made), tmp_path / "script.pt")
    for name in ("w.pt", "script.pt"):
        found = opened(tmp_path / name)
        assert sorted(found) == sorted(made.state_dict())
        np.testing.assert_array_equal(found["0.weight"], made[0].weight.detach().numpy())
