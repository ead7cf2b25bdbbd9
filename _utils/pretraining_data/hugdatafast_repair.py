"""hugdatafast 1.0.0, its last release (2020), made importable with today's fastai and numpy; import it from here.

Four repairs (facts.md#libraries):
1. its files take the name `typedispatch` from `fastai.text.all`, where fastcore's dispatcher no longer is: plum's stands in;
2. it says `np.int`, which numpy removed;
3. fastai asks a loader for item None to see one sample, where its loader expects a number;
4. its datasets look up every missing attribute in `hf_dset`, which a dataset that is just being unpickled does not have yet, so the
   look-up never ends. Loaders' workers unpickle datasets where they are not forked, as by default from Python 3.14 on.
Its show_batch stays broken; the notebooks show their batches themselves.
"""
import builtins

import numpy
import plum

builtins.typedispatch = plum.dispatch
numpy.int = int
import hugdatafast.fastai  # noqa: E402  only now can it be imported
from hugdatafast import HF_Dataset, HF_Datasets  # noqa: E402

del builtins.typedispatch, numpy.int
hugdatafast.fastai.np.int = int  # its shuffling says it again at run time
hugdatafast.fastai.MySortedDL.create_item = lambda self, i: self.dataset[self.idmap[i or 0]]


def _attribute_of_dataset(self, name):
    if name == "hf_dset":
        raise AttributeError(name)
    return _look_up(self, name)


_look_up, HF_Dataset.__getattr__ = HF_Dataset.__getattr__, _attribute_of_dataset

__all__ = ["HF_Datasets"]
