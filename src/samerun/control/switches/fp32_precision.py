"""float32 is computed in float32, not in TensorFloat-32 or bfloat16.

Torch keeps this three times over: a tree of settings (generic, then a backend, then an operator; a node that
is not set follows its parent), and two legacy flags beside it. Setting only one of them makes the getters of
the others raise, `torch.backends.cudnn.flags()` among them. So all are set, and all are restored.

`torch.backends.mkldnn.fp32_precision = x` writes the root of the tree; only torch's C function writes oneDNN.
One thing cannot be restored: convolutions and RNNs start as "TF32 until their parent is set", and torch has
no way to set that again. Afterwards they are set to TF32, which computes the same.
"""

from __future__ import annotations

from typing import Any, Literal

from samerun.control.imported import get_imported_module
from samerun.control.switches.switch import (
    Policy,
    Switch,
    Value,
    Variable,
    get_torch_c_module,
    torch_c_has_functions,
    torch_is_imported,
)

PrecisionKey = tuple[str, str]
"""Backend and operator: ("cuda", "conv"), or ("cuda", "all") for the backend's own node."""
ROOT: PrecisionKey = ("generic", "all")
BACKENDS: tuple[PrecisionKey, ...] = (("cuda", "all"), ("mkldnn", "all"))
OPERATORS: tuple[PrecisionKey, ...] = (
    ("cuda", "matmul"), ("cuda", "conv"), ("cuda", "rnn"), ("mkldnn", "matmul"), ("mkldnn", "conv"), ("mkldnn", "rnn"),
)  # fmt: skip
CUDNN: tuple[PrecisionKey, ...] = (("cuda", "conv"), ("cuda", "rnn"))
MATMUL: tuple[PrecisionKey, ...] = (("cuda", "matmul"), ("mkldnn", "matmul"))
KEYS = (ROOT, *BACKENDS, *OPERATORS)


def _fp32_settings_available() -> bool:
    return torch_c_has_functions(
        "_get_fp32_precision_getter", "_set_fp32_precision_setter", "_get_cudnn_allow_tf32", "_set_cudnn_allow_tf32"
    )


def _get_effective_precision(key: PrecisionKey) -> str:
    return str(get_torch_c_module()._get_fp32_precision_getter(*key))


def _set_precision(key: PrecisionKey, precision: str) -> None:
    get_torch_c_module()._set_fp32_precision_setter(*key, precision)


def _parent_key(key: PrecisionKey) -> PrecisionKey:
    return ROOT if key in BACKENDS else (key[0], "all")


def _read_all_precisions() -> dict[str, Value]:
    found: dict[str, Value] = {f"{backend}.{part}": _get_effective_precision((backend, part)) for backend, part in KEYS}
    for name, read in (("matmul", _read_legacy_matmul_precision), ("cudnn_allow_tf32", _read_legacy_cudnn_allows_tf32)):
        try:
            found[name] = read()
        except RuntimeError:
            found[name] = "mixed"
    return found


def _read_legacy_matmul_precision() -> str:
    return str(get_imported_module("torch").get_float32_matmul_precision())


def _read_legacy_cudnn_allows_tf32() -> bool:
    return bool(get_torch_c_module()._get_cudnn_allow_tf32())


def _set_ieee_precision_everywhere(ieee: Literal["ieee"]) -> None:
    """Put "ieee" in force everywhere; a node that follows its parent is left to follow it."""
    for key in KEYS:
        if key not in CUDNN and _get_effective_precision(key) != ieee:
            _set_precision(key, ieee)
    if _read_legacy_precision_via_temporary_ieee() != "highest":
        get_imported_module("torch").set_float32_matmul_precision("highest")
    if _probe_legacy_cudnn_allows_tf32():
        get_torch_c_module()._set_cudnn_allow_tf32(False)  # unsets convolutions and RNNs: they follow their parent
    for key in CUDNN:
        if _get_effective_precision(key) != ieee:
            _set_precision(key, ieee)


def _save_precisions() -> dict[str, Any]:
    effective_precisions = {key: _get_effective_precision(key) for key in KEYS}
    uninherited_precisions = {key: _probe_precision_or_none_if_inherited(key, effective_precisions) for key in KEYS}
    cudnn = _probe_legacy_cudnn_allows_tf32()
    for key in CUDNN:  # probing may have set them
        _restore_precision(key, uninherited_precisions, effective_precisions)
    matmul = _read_legacy_precision_via_temporary_ieee()
    for key in MATMUL:
        _restore_precision(key, uninherited_precisions, effective_precisions)
    return {
        "in_force": effective_precisions,
        "own_precisions": uninherited_precisions,
        "matmul": matmul,
        "cudnn": cudnn,
    }


def _restore_precisions(saved: dict[str, Any]) -> None:
    if _read_legacy_precision_via_temporary_ieee() != saved["matmul"]:
        get_imported_module("torch").set_float32_matmul_precision(saved["matmul"])
    if _probe_legacy_cudnn_allows_tf32() != saved["cudnn"]:
        get_torch_c_module()._set_cudnn_allow_tf32(saved["cudnn"])
    for key in KEYS:
        _restore_precision(key, saved["own_precisions"], saved["in_force"])


def _restore_precision(
    key: PrecisionKey, uninherited_precisions: dict[PrecisionKey, str], effective_precisions: dict[PrecisionKey, str]
) -> None:
    # Writing the value that is in force already would end "TF32 until their parent is set" for no reason.
    if key not in CUDNN or _get_effective_precision(key) != effective_precisions[key]:
        _set_precision(key, uninherited_precisions[key])


def _probe_precision_or_none_if_inherited(key: PrecisionKey, effective_precisions: dict[PrecisionKey, str]) -> str:
    """What `key` itself is set to; "none" where it follows its parent. Torch returns only the value in force."""
    if key == ROOT or effective_precisions[key] != effective_precisions[_parent_key(key)]:
        return effective_precisions[key]
    return (
        effective_precisions[key]
        if effective_precisions[key] == "none" or not _probe_follows_parent(key, effective_precisions)
        else "none"
    )


def _probe_follows_parent(key: PrecisionKey, effective_precisions: dict[PrecisionKey, str]) -> bool:
    """Found out by changing the parent and restoring it: or the root, if the parent itself follows that.

    Torch has no getter for "not set": a node that follows and one that is set to the same value read alike.
    """
    moved = _parent_key(key)
    if moved != ROOT and _probe_follows_parent(moved, effective_precisions):
        moved = ROOT
    other = "tf32" if effective_precisions[key] == "ieee" else "ieee"
    _set_precision(moved, other)
    try:
        return _get_effective_precision(key) == other
    finally:
        _set_precision(moved, effective_precisions[moved])


def _read_legacy_precision_via_temporary_ieee() -> str:
    """The legacy setting, also where torch refuses to return it because it contradicts the tree."""
    try:
        return _read_legacy_matmul_precision()
    except RuntimeError:
        before = {key: _get_effective_precision(key) for key in MATMUL}
        for key in MATMUL:
            _set_precision(key, "ieee")  # never a contradiction
        try:
            return _read_legacy_matmul_precision()
        finally:
            for key, value in before.items():
                _set_precision(key, value)


def _probe_legacy_cudnn_allows_tf32() -> bool:
    """The legacy flag. Torch refuses to return it when it contradicts the tree; then it follows from the tree."""
    try:
        return _read_legacy_cudnn_allows_tf32()
    except RuntimeError:
        in_tree = [_get_effective_precision(key) == "tf32" for key in CUDNN]
        if in_tree[0] == in_tree[1]:
            return not in_tree[0]
        before = {key: _get_effective_precision(key) for key in CUDNN}
        for key in CUDNN:
            _set_precision(key, "ieee")
        try:
            return _read_legacy_cudnn_allows_tf32()
        except RuntimeError:
            return True
        finally:
            for key, value in before.items():
                _set_precision(key, value)


def _wanted_fp32_precision(policy: Policy) -> Literal["ieee"] | None:
    return None if policy.precision == "keep" else "ieee"


def _is_wanted_precision_everywhere(precisions_read: dict[str, Value], wanted: str) -> bool:
    legacy = precisions_read["matmul"] == "highest" and precisions_read["cudnn_allow_tf32"] is False
    return legacy and all(precisions_read[".".join(key)] == wanted for key in KEYS)


SWITCH = Switch(
    "fp32_precision",
    "float32 is computed in float32, not in TensorFloat-32 or bfloat16.",
    "Convolutions and RNNs on CUDA use TensorFloat-32 by default. The older flags (allow_tf32,"
    " set_float32_matmul_precision) are set with the newer ones, so that the getters of both go on working."
    ' Left alone with precision="keep".',
    "any time",
    _read_all_precisions,
    _set_ieee_precision_everywhere,
    _wanted_fp32_precision,
    "torch",
    _fp32_settings_available,
    _save_precisions,
    _restore_precisions,
    agrees=_is_wanted_precision_everywhere,
    default={
        **{".".join(key): "tf32" if key in CUDNN else "none" for key in KEYS},
        "matmul": "highest",
        "cudnn_allow_tf32": True,
    },
    variables=(
        Variable("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", already_read=torch_is_imported),
        Variable("NVIDIA_TF32_OVERRIDE"),
    ),
)
