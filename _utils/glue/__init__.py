"""GLUE: tasks, tables, batches, runs, results and the submission."""
