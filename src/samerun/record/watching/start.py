"""Begin watching this process. Called by the bootstrap `sitecustomize`, before the program's first line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import ModuleType

from samerun.base import user_code
from samerun.base.hooks import PostImportHooks, set_unwatched_context
from samerun.base.versions import explain_unsupported_version
from samerun.record import pins
from samerun.record.config import CONFIG_VARIABLE, STARTED_FILE, WatchConfig, load_watch_config
from samerun.record.watching import hidden_frames, sites
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
    config = config or load_watch_config()
    if config is None:
        return None
    pins.choose_pin_value(config.pin_value)
    recorder = current_recorder = Recorder(config)
    set_unwatched_context(partial(_hidden_block, recorder))
    _create_started_file(config.folder)
    hidden_frames.install_stripping_excepthook()
    with suppress(OSError):
        user_code.treat_temporary_files_as_generated_since(
            os.stat(os.environ.get(CONFIG_VARIABLE) or config.folder).st_mtime_ns
        )
    if config.user_folder:
        sites.treat_as_user(os.path.realpath(config.user_folder))
    after = PostImportHooks()
    for interceptor in INTERCEPTORS:
        after.add(interceptor.module, _make_installer(recorder, interceptor))
    after.install()
    if config.check_imports:
        from samerun.record.watching.preloaded.import_conditions import ImportOrderRecorder

        ImportOrderRecorder(config.folder).install()
    if config.trace_lines:
        LineFollower(recorder).start_tracing()
    return recorder


@contextmanager
def _hidden_block(recorder: Recorder) -> Iterator[None]:
    """A block in which nothing that this thread does is recorded."""
    state = recorder.thread
    state.inside_samerun += 1
    try:
        yield
    finally:
        state.inside_samerun -= 1


def _create_started_file(folder: str) -> None:
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
