"""Fixtures shared by several test files."""
import gc
import os
import shutil
from dataclasses import replace
from pathlib import Path

# Many tests start several processes, whose threads would compete for the same cores. Before PyTorch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"  # instead of waiting for a hub that does not answer; before transformers is imported

import pytest

# Fixtures import the repository: the process that only distributes tests to workers also reads this file, and importing
# takes ten seconds.

LONG = {"test_hub", "test_hub_texts", "test_notebooks", "test_processes", "test_faults", "test_resume",
        "test_training_options"}  # files

SENTENCES = [
    "The generator replaces some words of the text, and the discriminator finds every replaced word.",
    "A small network makes good guesses; training it takes time and patience, as in every other year.",
    "In 1843 the first paper on this method was read aloud: nobody in the room understood its argument.",
    "Each sentence has been written for this purpose, with common and uncommon letters, quickly, lazily, jovially, "
    "oxidised.",
]


def pytest_collection_modifyitems(items):
    """Mark the tests in golden/, and start with the longest tests, so that the workers finish at the same time."""
    for item in items:
        if item.path.parent.name == "golden":
            item.add_marker(pytest.mark.golden)
    items.sort(key=lambda item: item.path.stem not in LONG)


@pytest.fixture(autouse=True)
def empty_plots(request, monkeypatch):
    """Drawing takes most of the time of a short run, so only tests that are marked `plots` draw.

    In the others, pretraining has no plots, and other plots are empty files.
    """
    from matplotlib.figure import Figure
    from script_server import save_empty_file

    import _utils.plots
    if not request.node.get_closest_marker("plots"):
        monkeypatch.setattr(_utils.plots, "save_pretraining_plots", lambda *_: None)
        monkeypatch.setattr(Figure, "savefig", save_empty_file)


@pytest.fixture(scope="session")
def repo():
    """Root folder of the repository."""
    return Path(__file__).parents[1]


@pytest.fixture(scope="session")
def shared(repo):
    """Folder with texts, tables and recorded values that are too large for the repository."""
    folder = repo.parent / "shared"
    if not folder.is_dir():
        pytest.skip("needs the folder ../shared with texts, tables and recorded values")
    return folder


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session):
    """Start the server of `scripts` after everything is imported and before any test has changed anything.

    The many objects of the imported libraries are no longer searched for garbage, which finetuning does after each run.
    """
    if session.items:
        from script_server import Scripts
        gc.freeze()
        session.scripts = Scripts()


@pytest.fixture(scope="session")
def scripts(request):
    """`scripts.run(command, arguments, folder)` runs a script or module in a fork of a process that has already
    imported everything.
    """
    yield request.session.scripts
    request.session.scripts.close()


@pytest.fixture(scope="session")
def small_tokenizer():
    """A tokenizer with about 300 tokens, trained on a few sentences."""
    from _utils.text.vocabulary import tokenizer_from_tokens, train_vocabulary
    return tokenizer_from_tokens(train_vocabulary(300, lambda: iter(SENTENCES * 5)))


@pytest.fixture(scope="session")
def fresh_checkpoint(small_tokenizer, tmp_path_factory):
    """Path of a pretraining checkpoint of size tiny with the small tokenizer and randomly initialized weights."""
    from tiny_pretraining import save_fresh
    return save_fresh(tmp_path_factory.mktemp("pretrained") / "fresh_0_100.0%.pth", small_tokenizer)


@pytest.fixture(scope="session")
def exported(fresh_checkpoint, tmp_path_factory):
    """The folder of the pair that export_hf writes for fresh_checkpoint. Do not modify it."""
    from _utils.commands.export_hf import export_hf
    folder = tmp_path_factory.mktemp("exported") / "pair"
    export_hf(str(fresh_checkpoint), str(folder))
    return folder


@pytest.fixture(scope="session")
def glue(tmp_path_factory):
    """Folder with synthetic GLUE tables. Do not modify it."""
    from _utils.tasks.synthetic import write_synthetic_glue
    folder = tmp_path_factory.mktemp("glue")
    write_synthetic_glue(folder)
    return folder


@pytest.fixture
def shallow(monkeypatch):
    """Limit the networks of every recipe to two layers."""
    from _utils.networks.build import PARTS
    from _utils.recipes import RECIPES
    for name, recipe in RECIPES.items():
        networks = {
            part: replace(network, layers=min(2, network.layers))
            for part in PARTS
            if (network := getattr(recipe, part))
        }
        monkeypatch.setitem(RECIPES, name, replace(recipe, **networks))


@pytest.fixture
def empty_folder(tmp_path, monkeypatch):
    """A temporary working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def workplace(empty_folder, small_tokenizer):
    """A temporary working directory with text.txt and vocab.txt, for `tiny_pretraining.run`."""
    from tiny_pretraining import write_text_and_vocabulary
    write_text_and_vocabulary(small_tokenizer)
    return empty_folder


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
    return Machine(hub, scripts, tmp_path / "work")
