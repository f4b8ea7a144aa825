"""
title: mean pooling of subtokens with a bf16 transformer: scatter expected self.dtype to equal src.dtype
expect: collision
thread: https://github.com/flairNLP/flair/pull/3651

Expectation, written first: the embedding class accumulates subtoken states into a buffer of the model's dtype and counts subtokens in a
second buffer of the same dtype, but the mask that is counted is made with .float(), which is float32. With a bfloat16 encoder scatter_add_
refuses the float32 source. The mask must be cast to the dtype of the states.
"""
import torch
from transformers import BertConfig, BertModel


def fill_mean_token_embeddings(all_token_embeddings, sentence_hidden_states, word_ids, token_lengths):
    batch_size, max_tokens, embedding_dim = all_token_embeddings.shape
    mask = word_ids >= 0

    all_token_embeddings.scatter_add_(
        1,
        word_ids.clamp(min=0).unsqueeze(-1).expand(-1, -1, embedding_dim),
        sentence_hidden_states * mask.unsqueeze(-1).to(sentence_hidden_states.dtype),
    )

    subtoken_counts = torch.zeros_like(all_token_embeddings[:, :, 0])
    subtoken_counts.scatter_add_(1, word_ids.clamp(min=0), mask.float())  # BORN COLLIDES

    all_token_embeddings = torch.where(
        subtoken_counts.unsqueeze(-1) > 0,
        all_token_embeddings / subtoken_counts.unsqueeze(-1).clamp(min=1),
        torch.zeros_like(all_token_embeddings),
    )
    positions = torch.arange(max_tokens, device=token_lengths.device)
    token_mask = positions[None, :] < token_lengths[:, None]
    return all_token_embeddings * token_mask.unsqueeze(-1)


class TransformerEmbeddings(torch.nn.Module):
    def __init__(self, model, subtoken_pooling="mean"):
        super().__init__()
        self.model = model
        self.subtoken_pooling = subtoken_pooling
        self.embedding_length = model.config.hidden_size

    def forward(self, input_ids, attention_mask, word_ids, token_lengths):
        hidden_states = self.model(input_ids, attention_mask=attention_mask).last_hidden_state
        token_embeddings = torch.zeros(
            (input_ids.shape[0], int(token_lengths.max()), self.embedding_length),
            device=hidden_states.device,
            dtype=hidden_states.dtype,
        )
        if self.subtoken_pooling == "mean":
            return fill_mean_token_embeddings(token_embeddings, hidden_states, word_ids, token_lengths)
        raise ValueError(f"{self.subtoken_pooling} is not a valid subtoken pooling")


def main():
    torch.manual_seed(3)
    config = BertConfig(vocab_size=80, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
    encoder = BertModel(config, add_pooling_layer=False).to(torch.bfloat16).eval()
    embeddings = TransformerEmbeddings(encoder)
    input_ids = torch.randint(5, 80, (2, 7))
    word_ids = torch.tensor([[-1, 0, 0, 1, 2, 2, -1], [-1, 0, 1, 1, 1, 2, -1]])
    with torch.no_grad():
        out = embeddings(input_ids, torch.ones_like(input_ids), word_ids, torch.tensor([3, 3]))
    print(out.shape, out.float().norm().item())


if __name__ == "__main__":
    main()
