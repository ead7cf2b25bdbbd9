"""A machine that reaches a small hub on localhost with the unchanged libraries."""
import json
import re
from pathlib import Path
from typing import NamedTuple

from hub_server import HubServer
from script_server import Scripts


class Machine(NamedTuple):
    """A folder on a machine that reaches the hub without a token."""
    hub: HubServer
    scripts: Scripts
    folder: Path

    def run(self, command, *arguments):
        """Run a script of the project and return a Done."""
        return self.scripts.run(command, arguments, self.folder)

    def downloads(self):
        """The names of the parquet files that were downloaded since the last call, in their order, with the ranges."""
        requests, self.hub.requests[:] = self.hub.requests[:], []
        return [request.rpartition("/")[2] for request in requests if re.match(r"GET /.*\.parquet", request)]


_LOAD = """
import json, sys
from _utils.text import load_documents
name, *revision = sys.argv[1:]
corpus = load_documents(name, "datasets", revisions=dict.fromkeys([name], *revision))
print(json.dumps([corpus.key, corpus.documents[:]]))
"""


def load(machine, *arguments):
    """[key, {column: values}] of a corpus loaded in a process of its own. arguments: name, revision."""
    (machine.folder / "load.py").write_text(_LOAD)
    return json.loads(assert_succeeds(machine.run(str(machine.folder / "load.py"), *arguments)).stdout)


def assert_succeeds(done):
    assert not done.returncode, done.stderr
    return done


def assert_one_line(done, *patterns):
    """A script ended with a line about an error that contains the regular expressions, and without a traceback."""
    line = re.split("[\r\n]+", done.stderr.strip())[-1]
    assert done.returncode == 1 and line.startswith("error: ") and len(line) < 800, done.stderr
    assert all(re.search(pattern, line) for pattern in patterns), line
    assert done.stderr.count("error: ") == 1 and "Traceback" not in done.stderr, done.stderr
