"""GLUE: tasks, tables, batches, metrics, runs, results and submissions."""
