"""The recorder's entry points: begin watching this process, mark a point of it, read what it already holds.

The bootstrap `sitecustomize` calls `start` before the program's first line.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import ModuleType
from typing import Any

from xxhash import xxh3_128_hexdigest

from samerun.base import user_code
from samerun.base.errors import SamerunError
from samerun.base.hooks import PostImportHooks, set_recorder_hiding_context
from samerun.base.versions import explain_unsupported_version
from samerun.record import pins
from samerun.record.config import CONFIG_VARIABLE, STARTED_FILE, WatchConfig, try_load_watch_config
from samerun.record.digests.state_digests import dict_items_bypassing_overrides, named_modules
from samerun.record.trace import format as f
from samerun.record.watching import stack_frames
from samerun.record.watching.interceptor import Interceptor
from samerun.record.watching.interceptors.table import INTERCEPTORS
from samerun.record.watching.line_follower import LineFollower
from samerun.record.watching.recorder import Recorder

current_recorder: Recorder | None = None


def start(config: WatchConfig | None = None) -> Recorder | None:
    """Install every interceptor in this process, once. Returns None if the process is not to be watched."""
    global current_recorder
    if current_recorder is not None:
        return current_recorder
    config = config or try_load_watch_config()
    if config is None:
        return None
    pins.set_pin_variant(config.pin_variant)
    recorder = current_recorder = Recorder(config)
    set_recorder_hiding_context(partial(_hide_from_recording, recorder))
    _try_create_started_file(config.folder)
    stack_frames.hide_recorder_frames_in_excepthook()
    with suppress(OSError):
        user_code.treat_temporary_files_as_generated_since(
            os.stat(os.environ.get(CONFIG_VARIABLE) or config.folder).st_mtime_ns
        )
    if config.user_folder:
        stack_frames.treat_folder_as_user_code(os.path.realpath(config.user_folder))
    after = PostImportHooks()
    for interceptor in INTERCEPTORS:
        after.call_now_or_after_import(interceptor.module, _make_installer(recorder, interceptor))
    after.install()
    if config.trace_lines:
        LineFollower(recorder).trace_this_thread()
    return recorder


@contextmanager
def _hide_from_recording(recorder: Recorder) -> Iterator[None]:
    """A block in which nothing that this thread does is recorded."""
    state = recorder.thread
    state.inside_samerun += 1
    try:
        yield
    finally:
        state.inside_samerun -= 1


def _try_create_started_file(folder: str) -> None:
    try:
        os.close(os.open(os.path.join(folder, STARTED_FILE), os.O_WRONLY | os.O_CREAT, 0o644))
    except OSError:  # the trace will say what is wrong with the folder
        pass


def _make_installer(recorder: Recorder, interceptor: Interceptor) -> Callable[[ModuleType], None]:
    def install(module: ModuleType) -> None:
        why = explain_unsupported_version(module.__name__, str(getattr(module, "__version__", "")))
        if why is not None:
            recorder.stop(why)
            return
        try:
            interceptor.install(recorder, module)
        except Exception as error:
            recorder.stop(f"samerun could not watch {interceptor.name}: {error!r}")

    return install


def mark(name: str, tensors: Any = None) -> None:
    """Note a named point of the run in its receipt or trace, with a digest of what it holds.

    tensors: a tensor, an array, a number, a text, or lists, tuples, dicts and dataclasses of them, of any dtype
    and shape; a module counts by its parameters and buffers. Nothing happens, at next to no cost, where the run
    is not recorded. Raises SamerunError if `name` is no text of 1 to 200 characters.

        samerun.mark("epoch 3", model)
    """
    if not isinstance(name, str) or not 0 < len(name) <= 200:
        raise SamerunError(f"mark({name!r}): a name is a text of 1 to 200 characters.")
    recorder = current_recorder
    if recorder is None or recorder.stopped or recorder.thread.inside_samerun:
        return
    from samerun.record.digests.state_digests import digest_tree

    torch: Any = sys.modules.get("torch")
    tensor_type = getattr(torch, "Tensor", None) or _Nothing
    state = recorder.thread
    state.inside_samerun += 1
    try:
        module_type: Any = getattr(getattr(torch, "nn", None), "Module", _Nothing)
        value = dict(tensors.state_dict()) if isinstance(tensors, module_type) else tensors
        digest = digest_tree(value, tensor_type)
    finally:
        state.inside_samerun -= 1
    recorder.emit_host_event(f.MARK, name, inputs=recorder.step, outputs=digest)


class _Nothing:
    """Stands for torch's types while torch is not there."""


MOST_MODELS = 1000
"""At most so many models and tensors are listed."""


def _is_trainable_leaf(tensor: Any) -> bool:
    """Whether an optimizer could train a tensor; torch refuses to tell it of one part of an `unbind` whose whole was
    written in place. That part is no leaf."""
    try:
        return bool(tensor.is_leaf and tensor.requires_grad)
    except RuntimeError:
        return False


def digest_initial_models_and_generators(recorder: Recorder) -> dict[str, Any]:
    """Digests of the models that exist, in the order of their names, and of the global generators.

    Found through the garbage collector: they were made before anybody watched. No method of the program is called, only
    the dicts are read in which torch keeps parameters, buffers and submodules. Torch is not imported for it.
    """
    if "torch" not in sys.modules:
        return {"models": [], "generators": {}}
    from samerun.record.watching.step_digests import StepDigester

    models = sorted(_describe_live_models(), key=lambda one: (one["model"], one["tensors"], one["digest"]))
    generators = {name: value.hex() for name, value in StepDigester(recorder).digest_rng_states()}
    return {"models": models[:MOST_MODELS], "generators": generators}


def _describe_live_models() -> Iterator[dict[str, Any]]:
    import torch

    modules, leaves = [], []
    for each in gc.get_objects():
        kind = type(each)  # not isinstance: that would call properties of proxies
        if issubclass(kind, torch.nn.Module):
            modules.append(each)
        elif kind in (torch.Tensor, torch.nn.Parameter) and _is_trainable_leaf(each):
            leaves.append(each)
    inner = {id(child) for one in modules for _, child in dict_items_bypassing_overrides(vars(one).get("_modules"))}
    owned: set[int] = set()
    for one in modules:
        if id(one) in inner:
            continue
        tensors = list(_iter_model_tensors(one))
        owned.update(map(id, tensors))
        if tensors:
            yield _describe_model(type(one).__name__, tensors)
    for each in leaves:
        if id(each) not in owned:
            yield _describe_model("a tensor of its own", [each])


def _iter_model_tensors(model: Any) -> Iterator[Any]:
    for _, module in named_modules(model):
        for kind in ("_parameters", "_buffers"):
            yield from (
                tensor for _, tensor in dict_items_bypassing_overrides(vars(module).get(kind)) if tensor is not None
            )


def _describe_model(name: str, tensors: list[Any]) -> dict[str, Any]:
    from samerun.record.digests.digest import digest, is_readable

    parts = b"".join(digest(each) for each in tensors if is_readable(each))
    return {"model": name[:200], "tensors": len(tensors), "digest": xxh3_128_hexdigest(parts)}
