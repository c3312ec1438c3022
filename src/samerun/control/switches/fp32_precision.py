"""float32 is computed in float32, not in TensorFloat-32 or bfloat16.

Torch keeps this three times over: a tree of settings (generic, then a backend, then an operator; a part that
is not set follows its parent), and two older flags beside it. Setting only one of them makes the getters of
the others raise, `torch.backends.cudnn.flags()` among them. So all are set, and all are given back.

`torch.backends.mkldnn.fp32_precision = x` writes the root of the tree; only torch's C function writes oneDNN.
One thing cannot be given back: convolutions and RNNs start as "TF32 until their parent is set", and torch has
no way to say so again. Afterwards they are set to TF32, which computes the same.
"""

from __future__ import annotations

from typing import Any

from samerun.control.seeds.loaded import present
from samerun.control.switches.started import torch_c, torch_has, torch_started
from samerun.control.switches.switch import Policy, Switch, Value, Variable

Key = tuple[str, str]
ROOT: Key = ("generic", "all")
BACKENDS: tuple[Key, ...] = (("cuda", "all"), ("mkldnn", "all"))
OPERATORS: tuple[Key, ...] = (
    ("cuda", "matmul"), ("cuda", "conv"), ("cuda", "rnn"), ("mkldnn", "matmul"), ("mkldnn", "conv"), ("mkldnn", "rnn"),
)  # fmt: skip
CUDNN: tuple[Key, ...] = (("cuda", "conv"), ("cuda", "rnn"))
MATMUL: tuple[Key, ...] = (("cuda", "matmul"), ("mkldnn", "matmul"))
KEYS = (ROOT, *BACKENDS, *OPERATORS)


def _available() -> bool:
    return torch_has(
        "_get_fp32_precision_getter", "_set_fp32_precision_setter", "_get_cudnn_allow_tf32", "_set_cudnn_allow_tf32"
    )


def _get(key: Key) -> str:
    return str(torch_c()._get_fp32_precision_getter(*key))


def _set(key: Key, value: str) -> None:
    torch_c()._set_fp32_precision_setter(*key, value)


def _parent(key: Key) -> Key:
    return ROOT if key in BACKENDS else (key[0], "all")


def _read() -> dict[str, Value]:
    found: dict[str, Value] = {f"{backend}.{part}": _get((backend, part)) for backend, part in KEYS}
    for name, read in (("matmul", _older_matmul), ("cudnn_allow_tf32", _older_cudnn)):
        try:
            found[name] = read()
        except RuntimeError:
            found[name] = "mixed"
    return found


def _older_matmul() -> str:
    return str(present("torch").get_float32_matmul_precision())


def _older_cudnn() -> bool:
    return bool(torch_c()._get_cudnn_allow_tf32())


def _write(wanted: str) -> None:
    """Put "ieee" in force everywhere; a part that follows its parent is left to follow it."""
    for key in KEYS:
        if _get(key) != wanted:
            _set(key, wanted) if key not in CUDNN else None
    if _hidden_matmul() != "highest":
        present("torch").set_float32_matmul_precision("highest")
    if _hidden_cudnn():
        torch_c()._set_cudnn_allow_tf32(False)  # unsets convolutions and RNNs: they follow their parent
    for key in CUDNN:
        if _get(key) != wanted:
            _set(key, wanted)


def _save() -> dict[str, Any]:
    seen = {key: _get(key) for key in KEYS}
    own = {key: _own(key, seen) for key in KEYS}
    cudnn = _hidden_cudnn()
    for key in CUDNN:  # asking may have set them
        _give_back(key, own, seen)
    matmul = _hidden_matmul()
    for key in MATMUL:
        _give_back(key, own, seen)
    return {"seen": seen, "own": own, "matmul": matmul, "cudnn": cudnn}


def _restore(saved: dict[str, Any]) -> None:
    if _hidden_matmul() != saved["matmul"]:
        present("torch").set_float32_matmul_precision(saved["matmul"])
    if _hidden_cudnn() != saved["cudnn"]:
        torch_c()._set_cudnn_allow_tf32(saved["cudnn"])
    for key in KEYS:
        _give_back(key, saved["own"], saved["seen"])


def _give_back(key: Key, own: dict[Key, str], seen: dict[Key, str]) -> None:
    # Writing what is so already would end "TF32 until their parent is set" for no reason.
    if key not in CUDNN or _get(key) != seen[key]:
        _set(key, own[key])


def _own(key: Key, seen: dict[Key, str]) -> str:
    """What `key` itself is set to; "none" where it follows its parent. Torch tells only what is in force."""
    if key == ROOT or seen[key] != seen[_parent(key)]:
        return seen[key]
    return seen[key] if seen[key] == "none" or not _follows(key, seen) else "none"


def _follows(key: Key, seen: dict[Key, str]) -> bool:
    """Found out by moving the parent, and putting it back: by the root, if the parent follows that itself."""
    mover = _parent(key)
    if mover != ROOT and _follows(mover, seen):
        mover = ROOT
    other = "tf32" if seen[key] == "ieee" else "ieee"
    _set(mover, other)
    try:
        return _get(key) == other
    finally:
        _set(mover, seen[mover])


def _hidden_matmul() -> str:
    """The older setting, also where torch refuses to tell it because the tree says otherwise."""
    try:
        return _older_matmul()
    except RuntimeError:
        before = {key: _get(key) for key in MATMUL}
        for key in MATMUL:
            _set(key, "ieee")  # never a contradiction
        try:
            return _older_matmul()
        finally:
            for key, value in before.items():
                _set(key, value)


def _hidden_cudnn() -> bool:
    """The older flag. Torch refuses to tell it when it contradicts the tree, which tells it as well."""
    try:
        return _older_cudnn()
    except RuntimeError:
        in_tree = [_get(key) == "tf32" for key in CUDNN]
        if in_tree[0] == in_tree[1]:
            return not in_tree[0]
        before = {key: _get(key) for key in CUDNN}
        for key in CUDNN:
            _set(key, "ieee")
        try:
            return _older_cudnn()
        except RuntimeError:
            return True
        finally:
            for key, value in before.items():
                _set(key, value)


def _wanted(policy: Policy) -> str | None:
    return None if policy.precision == "keep" else "ieee"


def _agrees(read: dict[str, Value], wanted: str) -> bool:
    older = read["matmul"] == "highest" and read["cudnn_allow_tf32"] is False
    return older and all(read[".".join(key)] == wanted for key in KEYS)


SWITCH = Switch(
    "fp32_precision",
    "float32 is computed in float32, not in TensorFloat-32 or bfloat16.",
    "Convolutions and RNNs on CUDA use TensorFloat-32 by default. The older flags (allow_tf32,"
    " set_float32_matmul_precision) are set with the newer ones, so that the getters of both go on working."
    ' Left alone with precision="keep".',
    "any time",
    _read,
    _write,
    _wanted,
    "torch",
    _available,
    _save,
    _restore,
    agrees=_agrees,
    default={
        **{".".join(key): "tf32" if key in CUDNN else "none" for key in KEYS},
        "matmul": "highest",
        "cudnn_allow_tf32": True,
    },
    variables=(
        Variable("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", started=torch_started),
        Variable("NVIDIA_TF32_OVERRIDE"),
    ),
)
