"""What pyproject.toml cannot say: the C sources. They are optional; without a compiler Python does their work, and the
wheel says so (``py3-none-any``).

The sources of the CUDA kernels are installed as they are: they are compiled where a program uses them.
"""

import os
import shlex
from glob import glob
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
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

RELEASE_CC = shlex.split(os.environ.get("SAMERUN_RELEASE_CC", ""))
"""For releases (tools/wheels.py): the compiler, used without the flags that the running Python was built with, so that
the same sources give the same wheel on any machine."""
RELEASE_LIBRARIES = os.environ.get("SAMERUN_RELEASE_LIBRARIES")
"""A folder that keeps libraries without a tie to Python from one version's wheel to the next."""
OPTIONAL = not (RELEASE_CC or os.environ.get("SAMERUN_REQUIRE_NATIVE"))
"""In a release, a library that cannot be built ends the build, instead of leaving a wheel without it."""

PYTHON_MODULES = {"samerun.base._wrap", "samerun.record.watching._watch"}
"""Modules in C. The other libraries are loaded by ctypes, without a tie to Python's ABI, and are extensions because
setuptools builds those. None has a tie to torch's."""

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


class WithReleaseCompiler(build_ext):
    """Compiles as usual, or for a release as `RELEASE_CC` says."""

    def build_extension(self, ext: Extension) -> None:
        if RELEASE_CC:
            self.compiler.set_executables(
                compiler_so=[*RELEASE_CC, "-fPIC", "-DNDEBUG"], linker_so=[*RELEASE_CC, "-shared", "-s"]
            )
        if RELEASE_LIBRARIES is None or ext.name in PYTHON_MODULES:
            super().build_extension(ext)
            return
        kept, built = Path(RELEASE_LIBRARIES, f"{ext.name}.so"), Path(self.get_ext_fullpath(ext.name))
        if kept.exists():
            built.parent.mkdir(parents=True, exist_ok=True)
            self.copy_file(str(kept), str(built))
        else:
            super().build_extension(ext)
            self.copy_file(str(built), str(kept))


class TaggedByContent(bdist_wheel):
    """Names a wheel in which no library was built for what it is: pure Python, for every machine."""

    def get_tag(self) -> tuple[str, str, str]:
        libraries = self.get_finalized_command("build_ext").get_outputs()
        if any(Path(library).exists() for library in libraries):
            return super().get_tag()
        self.root_is_pure = True
        return ("py3", "none", "any")


setup(
    cmdclass={"bdist_wheel": TaggedByContent, "build_ext": WithReleaseCompiler, "build_py": WithCudaSources},
    ext_modules=[
        Extension(
            "samerun.record.digests._digest",
            ["native/digest.c"],
            extra_compile_args=["-O3", "-std=c11", "-Wall", "-Wextra"],
            optional=OPTIONAL,
        ),
        # Preloaded into runs by `samerun check`, to hold the system's random bytes still.
        Extension(
            "samerun.record.watching._entropy",
            ["native/entropy.c"],
            extra_compile_args=["-O2", "-std=gnu11", "-Wall", "-Wextra"],
            libraries=["dl"],
            optional=OPTIONAL,
        ),
        Extension(
            "samerun.base._wrap",
            ["native/wrap.c"],
            extra_compile_args=["-O2", "-std=c11", "-Wall", "-Wextra"],
            optional=OPTIONAL,
        ),
        Extension(
            "samerun.record.receipt._folder",
            ["native/folder.c"],
            extra_compile_args=["-O2", "-std=gnu11", "-Wall", "-Wextra"],
            optional=OPTIONAL,
        ),
        Extension(
            "samerun.data._states",
            ["native/states.c"],
            extra_compile_args=["-O3", "-std=c11", "-Wall", "-Wextra"],
            optional=OPTIONAL,
        ),
        Extension(
            "samerun.record.watching._watch",
            sorted(glob("native/watch/*.c")),
            depends=["native/watch/watch.h"],
            extra_compile_args=["-O2", "-std=c11", "-Wall", "-Wextra", "-Wno-missing-field-initializers"],
            optional=OPTIONAL,
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
            optional=OPTIONAL,
        ),
    ],
)
