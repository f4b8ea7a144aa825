"""
title: document relation model under half-precision autocast: value cannot be converted to half without overflow: -1e+09
expect: collision
thread: https://github.com/NVIDIA/apex/issues/1052
fix_at: 71 (bfloat16 autocast has the range)

Expectation, written first: under autocast the path scorer's output is float16, and masked_fill is asked to write -1e9 into it, which is
outside the range of float16, so torch refuses the number. The fill value must be -inf or the minimum of the scores' dtype, or the scores must
be float32 before the mask.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class PathEncoder(nn.Module):
    def __init__(self, hidden, rel_dim):
        super().__init__()
        self.query = nn.Linear(2 * hidden, hidden)
        self.key = nn.Linear(hidden, hidden)
        self.value = nn.Linear(hidden, rel_dim)
        self.score = nn.Linear(hidden, 1)

    def forward(self, head, tail, paths, path_mask):
        q = self.query(torch.cat([head, tail], dim=-1)).unsqueeze(2)
        k = self.key(paths)
        scores = self.score(torch.tanh(q + k))
        scores_mask = scores.masked_fill(~path_mask.unsqueeze(-1), -1e9)  # BORN COLLIDES
        alpha = F.softmax(scores_mask, dim=2)
        return (alpha * self.value(paths)).sum(dim=2)


class MPR(nn.Module):
    def __init__(self, vocab=100, hidden=32, rel_dim=24, n_rel=7):
        super().__init__()
        self.embed = nn.Embedding(vocab, hidden)
        self.encoder = nn.GRU(hidden, hidden // 2, batch_first=True, bidirectional=True)
        self.path = PathEncoder(hidden, rel_dim)
        self.bili = nn.Linear(rel_dim, n_rel)

    def mention_pool(self, context, mention_map):
        return torch.matmul(mention_map, context)

    def forward(self, tokens, mention_map, pairs, paths_idx, path_mask):
        context, _ = self.encoder(self.embed(tokens))
        entities = self.mention_pool(context, mention_map)
        batch = torch.arange(tokens.size(0))[:, None]
        head, tail = entities[batch, pairs[..., 0]], entities[batch, pairs[..., 1]]
        paths = entities[batch[..., None], paths_idx]
        return self.bili(self.path(head, tail, paths, path_mask))


def make_batch(bsz=2, seq=12, n_ent=5, n_pair=4, n_path=3):
    mention_map = F.one_hot(torch.randint(0, seq, (bsz, n_ent)), seq).float()
    return {
        "tokens": torch.randint(0, 100, (bsz, seq)),
        "mention_map": mention_map,
        "pairs": torch.randint(0, n_ent, (bsz, n_pair, 2)),
        "paths_idx": torch.randint(0, n_ent, (bsz, n_pair, n_path)),
        "path_mask": torch.tensor([True, True, False]).expand(bsz, n_pair, n_path),
    }


def main():
    torch.manual_seed(66)
    model = MPR()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(2):
        batch = make_batch()
        labels = torch.randint(0, 2, (2, 4, 7)).float()
        with torch.autocast("cpu", dtype=torch.float16):
            logits = model(**batch)
        loss = F.binary_cross_entropy_with_logits(logits.float(), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
