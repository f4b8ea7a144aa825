"""
title: federated averaging adds a float update to BatchNorm's integer batch counter
expect: collision
thread: https://github.com/AI-secure/DBA/issues/1
fix_at: 36, 48, 52, 69

Expectation, written first: the helper accumulates the clients' differences for every entry of the state dict, the int64
num_batches_tracked among them, and scales each by eta / no_models. That product is a float tensor, and adding it in place to the
server's integer counter is refused.
"""
import copy

import torch
import torch.nn.functional as F
from torch import nn

class ResBlockNet(nn.Module):
    def __init__(self, width=8, num_classes=4):
        super().__init__()
        self.conv1 = nn.Conv2d(1, width, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(width)
        self.fc = nn.Linear(width, num_classes)
    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(x + self.bn2(self.conv2(x)))
        return self.fc(x.mean(dim=(2, 3)))

class Helper:
    def __init__(self, params):
        self.params = params
        self.target_model = ResBlockNet()
    def init_weight_accumulator(self, target_model):
        weight_accumulator = dict()
        for name, data in target_model.state_dict().items():
            weight_accumulator[name] = torch.zeros_like(data)
        return weight_accumulator
    def accumulate_weight(self, weight_accumulator, submit_params_update_dict):
        for update in submit_params_update_dict.values():
            for name, data in update.items():
                weight_accumulator[name].add_(data)
        return weight_accumulator
    def scale_update(self, update):
        return update * (self.params["eta"] / self.params["no_models"])  # BORN
    @torch.no_grad()
    def average_shrink_models(self, weight_accumulator, target_model):
        for name, data in target_model.state_dict().items():
            if self.params.get("tied", False) and name == "decoder.weight":
                continue
            update_per_layer = self.scale_update(weight_accumulator[name])  # BORN
            data.add_(update_per_layer)  # COLLIDES
        return True

class Client:
    def __init__(self, seed):
        generator = torch.Generator().manual_seed(seed)
        self.x = torch.randn(32, 1, 8, 8, generator=generator)
        self.y = (self.x.mean(dim=(1, 2, 3)) > 0).long() + 2 * (self.x[:, 0, 0, 0] > 0).long()
    def train(self, global_model, local_epochs=2, lr=0.1):
        model = copy.deepcopy(global_model)
        optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
        for _ in range(local_epochs):
            loss = F.cross_entropy(model(self.x), self.y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        reference = global_model.state_dict()
        return {name: data - reference[name] for name, data in model.state_dict().items()}, loss.item()

def main():
    torch.manual_seed(0)
    helper = Helper({"eta": 1.0, "no_models": 3})
    clients = [Client(seed) for seed in range(3)]
    for epoch in range(4):
        weight_accumulator = helper.init_weight_accumulator(helper.target_model)
        updates, losses = {}, []
        for index, client in enumerate(clients):
            updates[index], loss = client.train(helper.target_model)
            losses.append(loss)
        weight_accumulator = helper.accumulate_weight(weight_accumulator, updates)
        helper.average_shrink_models(weight_accumulator, helper.target_model)
        print(f"round {epoch} loss {sum(losses) / len(losses):.4f}")

if __name__ == "__main__":
    main()
