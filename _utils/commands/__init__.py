"""Commands of `python -m _utils`, and what they share. Those that measure are in benchmarks/."""
