"""
title: Server averaging of client states meets BatchNorm's batch counter
expect: collision
thread: https://github.com/APPFL/APPFL/pull/86
fix_at: zeros_like of the buffer made float32, with a cast back on load

Expectation, written first: The server sums weight * state over every entry of the state dict, not only the
parameters. num_batches_tracked is int64, its accumulator is zeros_like and so int64 too, and adding the float
product in place cannot be cast to Long.
"""
import copy

import torch
import torch.nn as nn


class CNN(nn.Module):
    def __init__(self, num_classes=4):
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3, padding=1)
        self.bn = nn.BatchNorm2d(6)
        self.fc = nn.Linear(6, num_classes)

    def forward(self, x):
        x = torch.relu(self.bn(self.conv(x)))
        return self.fc(x.mean(dim=(2, 3)))


class ClientOptim:
    def __init__(self, client_id, weight, model, data, num_local_epochs=2):
        self.id, self.weight = client_id, weight
        self.model, self.data, self.epochs = copy.deepcopy(model), data, num_local_epochs

    def update(self, global_state):
        self.model.load_state_dict(global_state)
        self.model.train()
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)
        loss_fn, train_loss = nn.CrossEntropyLoss(), 0.0
        for _ in range(self.epochs):
            for data, target in self.data:
                optimizer.zero_grad()
                loss = loss_fn(self.model(data), target)
                loss.backward()
                optimizer.step()
                train_loss += loss.item()
        return copy.deepcopy(self.model.state_dict()), train_loss / (self.epochs * len(self.data))


class FedServer:
    def __init__(self, weights, model):
        self.weights, self.model = weights, model

    def update(self, local_states):
        global_state = self.model.state_dict()
        new_state = {}
        for name, value in global_state.items():  # BORN
            total = torch.zeros_like(value)  # BORN
            for k, state in enumerate(local_states):
                total += self.weights[k] * state[name]  # BORN COLLIDES
            new_state[name] = total
        self.model.load_state_dict(new_state)
        return self.model.state_dict()


def make_clients(model, sizes):
    total = sum(sizes)
    clients = []
    for i, n in enumerate(sizes):
        batches = [(torch.randn(8, 1, 8, 8) + i * 0.2, torch.randint(0, 4, (8,))) for _ in range(n // 8)]
        clients.append(ClientOptim(i, n / total, model, batches))
    return clients


def run_serial(num_epochs=2):
    torch.manual_seed(86)
    model = CNN()
    clients = make_clients(model, sizes=[16, 24, 40])
    server = FedServer([c.weight for c in clients], model)
    state = model.state_dict()
    for t in range(num_epochs):
        results = [client.update(state) for client in clients]
        state = server.update([r[0] for r in results])
        loss = sum(c.weight * r[1] for c, r in zip(clients, results))
        print(f"round {t} train loss {loss:.4f}")


if __name__ == "__main__":
    run_serial()
