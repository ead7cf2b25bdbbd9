"""The model cards of exported folders: what the network is, and how it was trained."""
import json
import os
import re

from _utils.networks.build import count_parameters

_CARD = """---
library_name: transformers
---
# {title}

{parameters:,} parameters: {config.num_hidden_layers} layers x {config.hidden_size}, {config.num_attention_heads} \
attention heads, vocabulary of {config.vocab_size:,} tokens. Pretrained {training}.

```python
from transformers import AutoTokenizer, {name}

model = {name}.from_pretrained("PATH")
tokenizer = AutoTokenizer.from_pretrained("PATH")
```

Trained with:

```json
{made_by}
```
"""
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


def write_card(folder, network, title, training, made_by):
    """Write the README.md of an exported network. The arguments are those of `save_network`."""
    made_by = _STRING.sub(lambda match: f'"{without_folder(match[1])}"', json.dumps(made_by, indent=1))
    card = _CARD.format(title=title, parameters=count_parameters(network), config=network.config, training=training,
                        name=type(network).__name__, made_by=made_by)
    (folder / "README.md").write_text(card, encoding="utf-8")


def without_folder(value):
    """The last part of a path, glob or URL, to keep folders and buckets private; other strings as they are."""
    is_path = re.match(r"[/.~]|\w+://", value) or os.path.exists(value)
    return os.path.basename(value.rstrip("/")) if is_path else value
