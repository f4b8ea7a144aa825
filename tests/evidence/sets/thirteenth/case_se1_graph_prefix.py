"""
title: knowledge graph embeddings become a prefix of a half precision Llama's input
expect: collision
thread: https://github.com/zjukg/KoPA/issues/11
fix_at: 19, 31, 32, 33, 38, 39, 46, 49, 51, 54, 78, 79

Expectation, written first: the Llama is loaded in half, the adapter that maps graph embeddings to a prefix stays in
float32; concatenated, the whole input becomes float32 and the first projection of the Llama refuses it.
"""
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM


def load_base_model(dtype):
    config = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64)
    torch.manual_seed(0)
    return LlamaForCausalLM(config).to(dtype).eval()


def pretrained_kge(entities=20, relations=6, dim=12):
    gen = torch.Generator().manual_seed(1)
    return torch.randn(entities, dim, generator=gen), torch.randn(relations, dim, generator=gen)


class PretrainKGEmbedding(nn.Module):
    def __init__(self, ent_embs, rel_embs, dim_llm, num_prefix):
        super().__init__()
        self.num_prefix, self.dim_llm = num_prefix, dim_llm
        self.ent_embeddings = nn.Embedding.from_pretrained(ent_embs)
        self.rel_embeddings = nn.Embedding.from_pretrained(rel_embs)
        self.adapter = nn.Linear(3 * ent_embs.shape[1], num_prefix * dim_llm)  # BORN

    def forward(self, triple_ids):
        head, rel, tail = triple_ids.unbind(1)
        parts = [self.ent_embeddings(head), self.rel_embeddings(rel), self.ent_embeddings(tail)]
        prefix = self.adapter(torch.cat(parts, 1))
        return prefix.view(-1, self.num_prefix, self.dim_llm)


class KoPAWithAdapter(nn.Module):
    def __init__(self, model, kge, num_prefix=2):
        super().__init__()
        self.llama_model = model
        self.embeddings = PretrainKGEmbedding(*kge, model.config.hidden_size, num_prefix)  # BORN

    def forward(self, input_ids, attention_mask, triple_ids):
        kg_embeds = self.embeddings(triple_ids)
        token_embeds = self.llama_model.model.embed_tokens(input_ids)
        inputs_embeds = torch.cat((kg_embeds, token_embeds), dim=1)
        prefix_mask = torch.ones(kg_embeds.shape[:2], dtype=torch.long)
        mask = torch.cat((prefix_mask, attention_mask), dim=1)
        return self.llama_model(inputs_embeds=inputs_embeds, attention_mask=mask)  # COLLIDES


class Prompter:
    YES, NO = 5, 6

    def __call__(self, triples):
        ids = torch.stack([torch.tensor([1, 10 + h, 40 + r, 10 + t, 7]) for h, r, t in triples.tolist()])
        return ids, torch.ones_like(ids)

    def read(self, logits):
        return logits[:, -1, self.YES] - logits[:, -1, self.NO]


@torch.no_grad()
def inference(model, triples, batch=4):
    prompter, answers = Prompter(), []
    for chunk in triples.split(batch):
        ids, mask = prompter(chunk)
        answers.append(prompter.read(model(ids, mask, chunk).logits.float()))
    return torch.cat(answers)


def main():
    base = load_base_model(torch.float16)
    model = KoPAWithAdapter(base, pretrained_kge()).eval()
    gen = torch.Generator().manual_seed(2)
    triples = torch.stack([torch.randint(n, (10,), generator=gen) for n in (20, 6, 20)], 1)
    margin = inference(model, triples)
    print(f"margin {margin.mean().item():.3f}, spread {margin.std().item():.3f}")


main()
