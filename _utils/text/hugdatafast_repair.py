"""Makes hugdatafast 1.0.0, its last release (2020), work with current fastai and numpy. Import hugdatafast from here.

Four repairs (facts.md#libraries):
1. its modules import `typedispatch` from `fastai.text.all`, which no longer has fastcore's dispatcher; plum's
   dispatcher replaces it;
2. it uses `np.int`, which numpy removed;
3. fastai requests item None to see one sample, where its loader expects a number;
4. its datasets look up every missing attribute in `hf_dset`, which does not exist while a dataset is being unpickled,
   so the lookup recurses forever. Loader workers unpickle datasets when they are not forked, the default from Python
   3.14 on.
Its show_batch is still broken; the notebooks show their batches themselves.
"""
import builtins

import numpy
import plum

builtins.typedispatch = plum.dispatch
numpy.int = int  # for its shuffling
import hugdatafast.fastai  # noqa: E402  importable only now
from hugdatafast import HF_Dataset, HF_Datasets  # noqa: E402, F401

del builtins.typedispatch
hugdatafast.fastai.MySortedDL.create_item = lambda self, i: self.dataset[self.idmap[i or 0]]
HF_Dataset.hf_dset = None  # while one is being unpickled
