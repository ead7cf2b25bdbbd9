"""The entries of the key `tasks`: names of GLUE's tasks, whose files and folder are here, and dictionaries of others.

Imported and checked before PyTorch is.
"""
# The submission: {name of a task of GLUE: {split of a test set: file of its predictions}}; AX is a test set of MNLI
# (F38).
GLUE_TEST_FILES = {
    "cola": {"test": "CoLA.tsv"},
    "sst2": {"test": "SST-2.tsv"},
    "mrpc": {"test": "MRPC.tsv"},
    "stsb": {"test": "STS-B.tsv"},
    "qqp": {"test": "QQP.tsv"},
    "mnli": {"test_matched": "MNLI-m.tsv", "test_mismatched": "MNLI-mm.tsv", "test_ax": "AX.tsv"},
    "qnli": {"test": "QNLI.tsv"},
    "rte": {"test": "RTE.tsv"},
    "wnli": {"test": "WNLI.tsv"},
}
# Names of all tasks in glue.py. Others than GLUE's, which are not part of the submission, stand at the end.
GLUE_TASKS = (*GLUE_TEST_FILES,)
STARTED_FROM_MNLI = {"mrpc", "stsb", "rte"}  # the tasks to which the key start_from_mnli applies
