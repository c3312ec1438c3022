"""What pyproject.toml cannot say: the C sources. They are optional; without a compiler Python does their work."""

from glob import glob

from setuptools import Extension, setup

ALONE = {"native/digest.c", "native/entropy.c", "native/folder.c", "native/states.c"}
"""Sources that are a library each; the others are one."""

# `_watch` is a module in C; the others are loaded by ctypes, without a tie to Python's ABI, and are extensions because
# setuptools builds those. None has a tie to torch's.
setup(
    ext_modules=[
        Extension(
            "samerun.record._digest",
            ["native/digest.c"],
            extra_compile_args=["-O3", "-std=c11", "-Wall", "-Wextra"],
            optional=True,
        ),
        # Preloaded into runs by `samerun check`, to hold the system's random bytes still.
        Extension(
            "samerun.record._entropy",
            ["native/entropy.c"],
            extra_compile_args=["-O2", "-std=gnu11", "-Wall", "-Wextra"],
            libraries=["dl"],
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
            "samerun.record._watch",
            sorted(glob("native/watch/*.c")),
            depends=["native/watch/watch.h"],
            extra_compile_args=["-O2", "-std=c11", "-Wall", "-Wextra", "-Wno-missing-field-initializers"],
            optional=True,
        ),
        # The bits are specified: no contraction of a*b + c. Neither of the last two flags changes a bit.
        Extension(
            "samerun.numerics._portable",
            sorted(set(glob("native/*.c")) - ALONE),
            depends=[*glob("native/*.h"), *glob("native/*.inc"), *glob("native/functions/*.h")],
            extra_compile_args=[
                *["-O3", "-std=gnu11", "-Wall", "-Wextra", "-ffp-contract=off"],
                *["-fno-math-errno", "-fno-trapping-math"],
            ],
            libraries=["m"],
            extra_link_args=["-pthread"],
            optional=True,
        ),
    ]
)
