"""Measurements: each module is a command, prints a table, and writes its numbers to benchmarks/results/ as JSON."""
import _utils  # noqa: F401  before torch, as the scripts do
