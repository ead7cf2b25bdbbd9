"""The tables of numbers in README and docs are those of the raw files."""

import pytest

from benchmarks.tables import documents


@pytest.mark.parametrize("path, computed", documents(), ids=lambda value: getattr(value, "name", ""))
def test_numbers_of_tables_equal_the_raw_ones_rounded(path, computed):
    """If this fails, run python -m benchmarks.tables."""
    assert path.read_text(encoding="utf-8") == computed
