"""Tiny configurations of several families of encoders."""
from transformers import AlbertConfig, BertConfig, DebertaV2Config, DistilBertConfig, ElectraConfig, RobertaConfig

TINY = dict(
    vocab_size=400,
    hidden_size=16,
    num_hidden_layers=3,
    num_attention_heads=2,
    intermediate_size=16,
    max_position_embeddings=64,
)
FAMILIES = {
    "electra": ElectraConfig(embedding_size=8, **TINY),
    "bert": BertConfig(**TINY),
    "albert": AlbertConfig(embedding_size=8, **TINY),
    "roberta": RobertaConfig(type_vocab_size=1, **TINY),  # as on the hub: no second segment
    "deberta": DebertaV2Config(**TINY),
    "distilbert": DistilBertConfig(
        vocab_size=400, dim=16, n_layers=3, n_heads=2, hidden_dim=16, max_position_embeddings=64
    ),
}
