"""Kinds of tasks, and GLUE: one protocol, and a file for each kind."""
