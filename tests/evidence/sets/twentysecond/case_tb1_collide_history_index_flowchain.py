"""
title: indexing encoder outputs with float history indices raises "tensors used as indices must be long, int, byte or bool tensors"
expect: collision
thread: https://github.com/meaten/FlowChain-ICCV2023/issues/3
fix_at: 50, 52

Expectation, written first: the collate function builds the first-history indices with the legacy torch.Tensor
constructor, which always gives float32. The negated index stays float and the advanced indexing of the LSTM outputs in
encode_node_history refuses it with an IndexError.
"""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class TrajectoryDataset(Dataset):
    def __init__(self, num_agents=24, history_len=8, state_dim=6, seed=3):
        rng = np.random.default_rng(seed)
        self.history = rng.normal(size=(num_agents, history_len, state_dim)).astype(np.float32)
        self.first_history = rng.integers(0, history_len - 1, size=num_agents)
        self.future = rng.normal(size=(num_agents, 12, 2)).astype(np.float32)

    def __len__(self):
        return len(self.history)

    def __getitem__(self, index):
        return self.first_history[index], self.history[index], self.future[index]


def collate(batch):
    first_history, history, future = zip(*batch)
    first_history_index = torch.Tensor(first_history)  # BORN
    history_st = torch.stack([torch.from_numpy(h) for h in history])
    future_st = torch.stack([torch.from_numpy(f) for f in future])
    return first_history_index, history_st, future_st


class MultimodalGenerativeCVAE(nn.Module):
    def __init__(self, state_dim=6, enc_rnn_dim=16, horizon=12):
        super().__init__()
        self.horizon = horizon
        self.node_history_encoder = nn.LSTM(state_dim, enc_rnn_dim, batch_first=True)
        self.decoder = nn.Linear(enc_rnn_dim, horizon * 2)

    def encode_node_history(self, node_hist, first_history_indices):
        outputs, _ = self.node_history_encoder(node_hist)
        outputs = F.dropout(outputs, p=0.25, training=self.training)
        last_index_per_sequence = -(first_history_indices + 1)
        batch_index = torch.arange(first_history_indices.shape[0])
        return outputs[batch_index, last_index_per_sequence]  # COLLIDES

    def forward(self, first_history_indices, node_hist):
        encoded = self.encode_node_history(node_hist, first_history_indices)
        return self.decoder(encoded).view(-1, self.horizon, 2)


def train_epoch(model, loader, optimizer):
    model.train()
    total = 0.0
    for first_history_index, history, future in loader:
        optimizer.zero_grad()
        prediction = model(first_history_index, history)
        loss = (prediction - future).norm(dim=-1).mean()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


def main():
    torch.manual_seed(0)
    loader = DataLoader(TrajectoryDataset(), batch_size=8, collate_fn=collate)
    model = MultimodalGenerativeCVAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(2):
        print(f"epoch {epoch} ade {train_epoch(model, loader, optimizer):.4f}")


if __name__ == "__main__":
    main()
