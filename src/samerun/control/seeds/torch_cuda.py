"""Torch's generators of all CUDA devices (and of AMD devices, which torch calls CUDA)."""

from __future__ import annotations

from samerun.control.seeds.torch_device import device_source

SOURCE = device_source("cuda")
