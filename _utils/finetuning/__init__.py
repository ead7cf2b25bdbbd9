"""Finetuning runs: their configuration, plan, table, checkpoints and results."""
