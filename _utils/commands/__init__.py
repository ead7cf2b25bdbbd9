"""The commands that `python -m _utils` lists, a module each."""
