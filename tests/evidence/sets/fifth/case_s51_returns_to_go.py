"""
title: returns-to-go of logged episodes are cumulated in float64, the decision transformer is float32
expect: collision
needs: transformers
fix_at: 46

After https://github.com/DLR-RM/stable-baselines3/issues/853 and https://github.com/AI4Finance-Foundation/ElegantRL/issues/9.
Right: the returns become float32 where they become a tensor.
"""
import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from transformers import DecisionTransformerConfig, DecisionTransformerModel

torch.manual_seed(106)


class Episodes(Dataset):
    def __init__(self, count, length=12, state_dim=4, actions=2):
        make = np.random.default_rng(0)
        self.items = []
        for _ in range(count):
            states = make.normal(size=(length, state_dim)).astype(np.float32)
            act = np.eye(actions, dtype=np.float32)[make.integers(0, actions, length)]
            self.items.append((states, act, [float(s.sum() > 0) for s in states]))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def to_go(rewards):
    return torch.from_numpy(np.cumsum(rewards[::-1])[::-1].copy())[:, None]  # BORN


class Collate:
    def __init__(self, window, scale):
        self.window, self.scale = window, scale

    def __call__(self, episodes):
        states = torch.stack([torch.from_numpy(s[-self.window:]) for s, _, _ in episodes])
        actions = torch.stack([torch.from_numpy(a[-self.window:]) for _, a, _ in episodes])
        returns = torch.stack([to_go(r)[-self.window:] for _, _, r in episodes]) / self.scale
        rewards = torch.tensor([r[-self.window:] for _, _, r in episodes])[..., None]
        return dict(states=states, actions=actions, rewards=rewards, returns_to_go=returns,
                    timesteps=torch.arange(self.window).expand(len(episodes), -1), attention_mask=torch.ones(len(episodes), self.window))


def train(epochs=1):
    config = DecisionTransformerConfig(state_dim=4, act_dim=2, hidden_size=16, max_ep_len=32, n_layer=1, n_head=2, n_inner=32, vocab_size=1)
    model = DecisionTransformerModel(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(Episodes(12), batch_size=4, collate_fn=Collate(window=6, scale=10.0))
    for _ in range(epochs):
        for batch in loader:
            predicted = model(**batch).action_preds  # COLLIDES
            loss = F.mse_loss(predicted, batch["actions"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(round(loss.item(), 4))


train()
