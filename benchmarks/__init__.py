"""Measurements.

Commands, which benchmarks/README.md lists. Those that measure speed write their numbers to benchmarks/results/ as JSON.
"""
import _utils  # noqa: F401  before torch, as in the scripts
