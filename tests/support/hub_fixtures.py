"""Fixtures of the tests with a hub."""
import os
import shutil

import pytest


@pytest.fixture(scope="session")
def served(tmp_path_factory):
    """(server, scripts that use it, cache of the libraries)."""
    from hub_server import HubServer
    from script_server import Scripts
    hub, cache = HubServer(), tmp_path_factory.mktemp("cache") / "huggingface"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    environment |= {"HF_ENDPOINT": hub.url, "HF_HOME": str(cache), "NO_PROXY": "localhost,127.0.0.1"}
    environment["DISABLE_SAFETENSORS_CONVERSION"] = "1"  # by the hub, which older transformers ask for in a thread
    scripts = Scripts(environment)
    yield hub, scripts, cache
    scripts.close()
    hub.shutdown()


@pytest.fixture
def machine(served, tmp_path):
    """A Machine with an empty cache, and an empty hub."""
    from hub_machine import Machine
    hub, scripts, cache = served
    hub.clear()
    shutil.rmtree(cache, ignore_errors=True)
    (tmp_path / "work").mkdir()
    return Machine(hub, scripts, tmp_path / "work", cache)
