"""Measurements.

Most modules are a command that prints a table and writes the numbers to benchmarks/results/ as JSON.
"""
import _utils  # noqa: F401  before torch, as in the scripts
