"""What pyproject.toml cannot say: the C sources. They are optional; without a compiler Python does their work.

The sources of the CUDA kernels are installed as they are: they are compiled where a program uses them.
"""

import os
from glob import glob
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

ALONE = {"native/digest.c", "native/entropy.c", "native/folder.c", "native/states.c", "native/wrap.c"}
"""Sources that are a library each; the others are one."""

ASAN = [
    *["-fsanitize=address", "-fno-omit-frame-pointer", "-g1", "-O1"],
    *["--param", "asan-instrumentation-with-call-threshold=0"],
]
"""Line numbers alone, and checks that are calls: otherwise one unrolled AVX-512 kernel compiles for minutes."""

SANITIZE = ASAN if os.environ.get("SAMERUN_SANITIZE") else []
"""For `make fuzz-portable`: the kernels stop where they leave the memory that they were given."""

CUDA_SOURCES = ["native/portable.h", *sorted(glob("native/functions/*.h")), *sorted(glob("native/cuda/*"))]


class WithCudaSources(build_py):
    """Puts the CUDA sources, and the headers that they share with C, beside the module that compiles them."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:  # they are read from native/
            return
        for source in CUDA_SOURCES:
            to = Path(self.build_lib, "samerun/numerics/cuda", source)
            to.parent.mkdir(parents=True, exist_ok=True)
            self.copy_file(source, str(to))


# `_watch` and `_wrap` are modules in C; the others are loaded by ctypes, without a tie to Python's ABI, and are
# extensions because setuptools builds those. None has a tie to torch's.
setup(
    cmdclass={"build_py": WithCudaSources},
    ext_modules=[
        Extension(
            "samerun.record.digests._digest",
            ["native/digest.c"],
            extra_compile_args=["-O3", "-std=c11", "-Wall", "-Wextra"],
            optional=True,
        ),
        # Preloaded into runs by `samerun check`, to hold the system's random bytes still.
        Extension(
            "samerun.record.watching._entropy",
            ["native/entropy.c"],
            extra_compile_args=["-O2", "-std=gnu11", "-Wall", "-Wextra"],
            libraries=["dl"],
            optional=True,
        ),
        Extension(
            "samerun.base._wrap",
            ["native/wrap.c"],
            extra_compile_args=["-O2", "-std=c11", "-Wall", "-Wextra"],
            optional=True,
        ),
        Extension(
            "samerun.record.receipt._folder",
            ["native/folder.c"],
            extra_compile_args=["-O2", "-std=gnu11", "-Wall", "-Wextra"],
            optional=True,
        ),
        Extension(
            "samerun.data._states",
            ["native/states.c"],
            extra_compile_args=["-O3", "-std=c11", "-Wall", "-Wextra"],
            optional=True,
        ),
        Extension(
            "samerun.record.watching._watch",
            sorted(glob("native/watch/*.c")),
            depends=["native/watch/watch.h"],
            extra_compile_args=["-O2", "-std=c11", "-Wall", "-Wextra", "-Wno-missing-field-initializers"],
            optional=True,
        ),
        # The bits are specified: no contraction of a*b + c. Neither of the last two flags changes a bit.
        Extension(
            "samerun.numerics.kernels._portable",
            sorted(set(glob("native/*.c")) - ALONE),
            depends=[*glob("native/*.h"), *glob("native/*.inc"), *glob("native/functions/*.h")],
            extra_compile_args=[
                *["-O3", "-std=gnu11", "-Wall", "-Wextra", "-ffp-contract=off"],
                *["-fno-math-errno", "-fno-trapping-math", *SANITIZE],
            ],
            libraries=["m"],
            extra_link_args=["-pthread", *SANITIZE],
            optional=True,
        ),
    ],
)
