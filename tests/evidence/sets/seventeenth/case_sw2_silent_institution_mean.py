"""
title: features of large institutions come out too small: the sum over their authors is kept in float16
expect: silent:lost-update|precision-loss
thread: https://github.com/rusty1s/pytorch_sparse/issues/128
measured: institution 0 with 13411 authors: mean feature 0.7099; institution 2 with 4448 authors: mean feature 1.0247; institution 7 with
    123 authors: mean feature 1.0984; ranking by activity [3, 6, 7], spread 0.1361
widened: institution 0 with 13411 authors: mean feature 1.0986; institution 2 with 4448 authors: mean feature 1.0997; institution 7 with
    123 authors: mean feature 1.0981; ranking by activity [4, 3, 2], spread 0.0008
innocent: institution 0 with 13411 authors: mean feature 0.7099; institution 2 with 4448 authors: mean feature 1.0247; institution 7 with
    123 authors: mean feature 1.0985; ranking by activity [3, 6, 7], spread 0.1361
suspect: 49 half result: late (the finished mean is rounded once)

Expectation, written first: Author features are float16 and so is the accumulator over the chunks. Once a sum passes some thousands the
    addends are under half a step and are lost, so the mean of institutions with thousands of authors is far too small. Saving the
    finished mean as float16 costs only 0.05%.
"""
import torch


class AuthorFeatures:
    def __init__(self, num_authors, dim, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.x = (1.1 + 0.3 * torch.randn(num_authors, dim, generator=g)).to(torch.float16)

    def rows(self, idx):
        return self.x[idx]


class MeanAggregator:
    def __init__(self, num_nodes):
        self.num_nodes = num_nodes

    def __call__(self, src_feat, dst, chunk=4):
        out = torch.zeros(self.num_nodes, src_feat.shape[1], dtype=src_feat.dtype)  # BORN
        for feat, node in zip(src_feat.split(chunk), dst.split(chunk)):
            partial = torch.zeros_like(out).index_add_(0, node, feat.to(out.dtype))
            out += partial  # BORN
        degree = torch.bincount(dst, minlength=self.num_nodes).clamp(min=1)
        return out.float() / degree[:, None]


class MAG240MPreprocess:
    def __init__(self, authors, affiliated):
        self.authors, self.affiliated = authors, affiliated

    def institution_features(self, num_institutions):
        agg = MeanAggregator(num_institutions)
        feat = agg(self.authors.rows(self.affiliated[0]), self.affiliated[1])  # BORN
        return feat.to(torch.float16)
torch.manual_seed(0)
num_authors, num_inst, dim = 30000, 8, 16
size = torch.tensor([0.45, 0.25, 0.15, 0.08, 0.04, 0.02, 0.006, 0.004])
dst = torch.multinomial(size, num_authors, replacement=True)
affiliated = torch.stack([torch.arange(num_authors), dst])
prep = MAG240MPreprocess(AuthorFeatures(num_authors, dim), affiliated)
full_feat = prep.institution_features(num_inst).float()
deg = torch.bincount(dst, minlength=num_inst)
for i in (0, 2, 7):
    print(f"institution {i} with {deg[i]} authors: mean feature {full_feat[i].mean():.4f}")
scores = full_feat @ torch.ones(dim)
print(f"ranking by activity {scores.argsort(descending=True).tolist()[:3]}, spread {scores.std() / scores.mean():.4f}")
