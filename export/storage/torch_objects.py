"""What the names in a PyTorch checkpoint's pickle stand for: storages, and tensors in them."""

from __future__ import annotations

from dataclasses import dataclass

_RANK_LIMIT = 64


class PickleFault(ValueError):
    """Why a pickle is not read."""


@dataclass(frozen=True, slots=True)
class Global:
    """A name that the pickle mentions, `module.name`."""

    name: str


@dataclass(slots=True)
class Foreign:
    """What a name that is not understood would have made, and the state that it would have."""

    name: str
    state: object = None


@dataclass(frozen=True, slots=True)
class Storage:
    """Numbers of one kind beside the pickle: `kind` is torch's name of it, `FloatStorage`."""

    kind: str
    key: str
    count: int


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor in a storage; `dtype` is torch's name where the storage does not say it."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str | None = None


_PARAMETERS = {"torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state"}
_TENSORS = {
    "torch._utils._rebuild_tensor",
    "torch._utils._rebuild_tensor_v2",
    "torch._utils._rebuild_tensor_v3",
}


def called(function: object, arguments: object) -> object:
    """What a call makes."""
    match function, arguments:
        case Global("torch._tensor._rebuild_from_type_v2"), (Global() as inner, _, values, *_):
            # a subclass of tensors, which is read as the tensor that it is
            return _tensor_or_foreign(inner, values)
        case Global("torch.Size"), ((tuple() | list()) as sizes,) if len(sizes) <= _RANK_LIMIT:
            return tuple(sizes)
    return _tensor_or_foreign(function, arguments)


def _tensor_or_foreign(function: object, arguments: object) -> object:
    if not isinstance(function, Global) or not isinstance(arguments, tuple):
        return Foreign("a call of what has no name")
    if function.name in _TENSORS:
        return _tensor(function.name, arguments)
    if function.name in _PARAMETERS and arguments:
        return arguments[0]
    return Foreign(function.name)


def _tensor(name: str, arguments: tuple[object, ...]) -> StoredTensor:
    match arguments:
        case (Storage() as storage, int(offset), tuple(shape), tuple(strides), *others):
            if len(shape) != len(strides) or len(shape) > _RANK_LIMIT:
                raise PickleFault(f"a tensor has {len(shape)} sizes and {len(strides)} strides")
            numbers = (offset, *shape, *strides)
            if not all(type(n) is int and 0 <= n < 2**63 for n in numbers):
                raise PickleFault("a tensor has sizes, strides or an offset below 0, or too large")
            dtype = others[2] if name.endswith("_v3") and len(others) > 2 else None
            kind = dtype.name if isinstance(dtype, Global) else None
            return StoredTensor(storage, offset, shape, strides, kind)
    raise PickleFault("a tensor is described in another way than torch does")


def persistent(identity: object) -> object:
    """What stands beside the pickle: a storage.  Old files have the code of classes there too."""
    match identity:
        case ("module", Global() as module, *_):
            return module
        case ("storage", Global(kind), str(key), _, int(count), *view):
            if any(part is not None for part in view):
                raise PickleFault("a storage is a view of another")
            if not 0 <= count < 2**60:
                raise PickleFault(f"a storage of {count:,} elements is too large for any machine")
            return Storage(kind.rpartition(".")[2], key, count)
    raise PickleFault("a storage is described in another way than torch does")
