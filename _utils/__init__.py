"""What the notebook would skip; each module is named by its content."""
import warnings

# fastai 2.8 calls torch.jit.script while it is imported, which newer versions of torch warn about.
warnings.filterwarnings("ignore", message=".*torch.jit.script.*")
