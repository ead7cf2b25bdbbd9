"""Values recorded from Google's code and electra_pytorch."""
import json
from functools import cache
from pathlib import Path

import numpy as np

GOLDEN = Path(__file__).parents[1] / "golden"


@cache
def recorded(path):
    """The content of a JSON file, or {name: array} of an .npz file. path: below tests/golden/, or absolute."""
    file = GOLDEN / path
    return json.loads(file.read_text()) if file.suffix == ".json" else dict(np.load(file))
