"""Tasks that the key `tasks` accepts beside the names of GLUE's. Imported before PyTorch."""
SOURCES = []  # a TaskSource adds itself, as in _utils/custom/source.py


class TaskSource:
    """Other tasks: their entries in `tasks`, which are names or dictionaries with a name.

    names: of entries that are strings.
    """
    names = ()

    def complete(self, entry):
        """The dictionary of an entry with all keys. UserError for invalid ones. No file is read."""

    def of_name(self, name, folder):
        """The dictionary of an entry that is a name. folder: as the key glue_dir."""

    def check_files(self, entry):
        """UserError if a file of a completed dictionary does not exist."""

    def load(self, entry):
        """TaskData of a completed dictionary. UserError, with file and line, for malformed files."""

    def task_of(self, data):
        """The Task of which `Task.as_data` returned the data; None if it is of another source. ValueError for invalid
        data, which may come from a stranger.
        """


def source_of(entry):
    """The TaskSource of a dictionary or a name, or None."""
    return next((source for source in SOURCES if isinstance(entry, dict) or entry in source.names), None)
