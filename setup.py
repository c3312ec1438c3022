"""What pyproject.toml cannot say: the C sources. They are optional; without a compiler Python does their work."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        # Loaded by ctypes: no tie to Python's ABI or torch's. (An extension, because setuptools builds those.)
        Extension(
            "samerun.record._digest",
            ["native/digest.c"],
            extra_compile_args=["-O3", "-std=c11", "-Wall", "-Wextra"],
            optional=True,
        )
    ]
)
