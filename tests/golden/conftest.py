"""Marks every test in this folder as `golden`: `python -m pytest -m golden` runs them alone."""
from pathlib import Path

import pytest


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.golden)
