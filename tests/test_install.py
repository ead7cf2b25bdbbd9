"""Installing the requirements by the commands of README and Makefile, where pip is old, and what has to be built."""
import os
import re
import subprocess
import sys

import pytest
from documents import REPO, read

pytestmark = pytest.mark.slow

SOURCE_PACKAGE = "seqeval"  # the only one without a wheel


def run(command, folder, **variables):
    return subprocess.run(command, cwd=folder, env=os.environ | variables, capture_output=True, text=True)


def environment(folder, *packages):
    """A folder with an environment `.venv` that has the packages, and its pip."""
    assert run([sys.executable, "-m", "venv", ".venv"], folder).returncode == 0
    done = run([".venv/bin/python", "-m", "pip", "install", *packages], folder)
    if done.returncode and re.search("Connection|timed out|Temporary failure", done.stderr):
        pytest.skip(f"no package index can be reached: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr


def readme_commands():
    blocks = re.findall(r"```bash\n(.*?)```", read(REPO / "README.md"), re.S)
    return [line for line in "\n".join(blocks).splitlines() if "pip install" in line]


def makefile_commands():
    recipe = run(["make", "--dry-run", "--always-make", ".venv/installed"], REPO).stdout
    return [line for line in recipe.splitlines() if "pip install" in line]


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python 3.12 and newer cannot run pip 23.0.1")
@pytest.mark.parametrize("commands", [readme_commands, makefile_commands])
def test_an_old_pip_builds_the_source_package(tmp_path, commands):
    """Python 3.11.2 makes environments with pip 23.0.1 and without wheel, and torch needs a newer setuptools. That pip
    builds in the environment itself, where the build of seqeval fails.
    """
    environment(tmp_path, "pip==23.0.1", "setuptools>=84")
    [requirement] = [line for line in read(REPO / "requirements.txt").splitlines() if line.startswith(SOURCE_PACKAGE)]
    (tmp_path / "requirements.txt").write_text(requirement)
    assert commands()
    for command in commands():
        done = run(["sh", "-c", command], tmp_path, PIP_NO_CACHE_DIR="1")
        assert done.returncode == 0, done.stderr[-2000:]
    assert run([".venv/bin/python", "-m", "pip", "show", SOURCE_PACKAGE], tmp_path).returncode == 0


def test_only_one_package_is_built_from_source(tmp_path):
    environment(tmp_path, "--upgrade", "pip")
    wheels = ["--only-binary", ":all:", "--no-binary", SOURCE_PACKAGE]
    done = run([".venv/bin/python", "-m", "pip", "install", "--dry-run", *wheels, "-r", REPO / "requirements.txt"],
               tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
