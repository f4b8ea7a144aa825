"""
title: a run trains float32 weights and, each epoch, exports a bfloat16 copy for serving that never comes back
expect: clean

Looks like epoch_checkpoint_rounds; here the narrow copy is only served, the run resumes from its float32 file.
"""
import io

import torch
import torch.nn.functional as F
from torch import nn


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 4))

    def forward(self, x):
        return self.body(x)


def export(model):
    file = io.BytesIO()
    torch.save({name: value.detach().to(torch.bfloat16) for name, value in model.state_dict().items()}, file)
    file.seek(0)
    return file


def serve(file, x):
    served = Classifier().to(torch.bfloat16).eval()
    served.load_state_dict(torch.load(file))
    with torch.no_grad():
        return served(x.to(torch.bfloat16)).float().softmax(-1)


torch.manual_seed(0)
model = Classifier()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
data = [(torch.randn(16, 12), torch.randint(0, 4, (16,))) for _ in range(3)]
for number in range(5):
    for x, y in data:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    answer = serve(export(model), data[0][0])
resumed = Classifier()
resumed.load_state_dict({name: value.clone() for name, value in model.state_dict().items()})
print(round(float(loss.detach()), 4), tuple(answer.shape), next(resumed.parameters()).dtype)
