"""
title: labels are spread over a networkx graph, whose adjacency matrix is float64
expect: collision
needs: networkx
fix_at: 29, 68

After https://github.com/Rose-STL-Lab/torchTS/issues/49 and https://github.com/networkx/networkx/pull/4850.
Right: the matrix is asked for, or made, in float32.
"""
import networkx as nx
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(620)


class Friends:
    """A small world of friends; two camps, known for a few of them."""

    def __init__(self, people=60):
        self.graph = nx.connected_watts_strogatz_graph(people, 6, 0.1, seed=620)
        self.camp = torch.arange(people) // (people // 2)
        self.known = torch.arange(people) % 5 == 0

    def propagation(self):
        adjacency = torch.from_numpy(nx.to_numpy_array(self.graph))  # BORN
        degree = adjacency.sum(1)
        return (adjacency / degree.sqrt()[:, None] / degree.sqrt()).to_sparse()


class Predict(nn.Module):
    def __init__(self, features, classes=2):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(features, 16), nn.ReLU(), nn.Linear(16, classes))

    def forward(self, x):
        return self.net(x)


class CorrectAndSmooth:
    def __init__(self, matrix, keep=0.2, rounds=10):
        self.matrix, self.keep, self.rounds = matrix, keep, rounds

    def spread(self, start):
        out = start
        for _ in range(self.rounds):
            out = self.keep * start + (1 - self.keep) * torch.sparse.mm(self.matrix, out)  # COLLIDES
        return out

    def __call__(self, scores, camp, known):
        error = torch.zeros_like(scores)
        error[known] = F.one_hot(camp[known], scores.shape[1]).to(scores.dtype) - scores[known]
        return scores + self.spread(error)


friends = Friends()
x = torch.randn(60, 8) + friends.camp[:, None] * 0.5
model = Predict(8)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(50):
    loss = F.cross_entropy(model(x)[friends.known], friends.camp[friends.known])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
with torch.no_grad():
    scores = model(x).softmax(-1)
    smooth = CorrectAndSmooth(friends.propagation())(scores, friends.camp, friends.known)
print("accuracy", round((smooth.argmax(-1) == friends.camp).float().mean().item(), 3))
