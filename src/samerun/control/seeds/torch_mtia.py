"""Torch's generators of all MTIA devices."""

from __future__ import annotations

from samerun.control.seeds.torch_device import device_source

SOURCE = device_source("mtia")
