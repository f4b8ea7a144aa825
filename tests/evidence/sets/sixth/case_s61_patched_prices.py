"""
title: prices are resampled and standardised by pandas in float64, PatchTST's first layer is float32
expect: collision
needs: pandas, transformers
fix_at: 38

After https://github.com/awslabs/gluonts/issues/3198 and https://github.com/awslabs/gluonts/pull/3307.
Right: the windows become float32 as they leave pandas.
"""
import numpy as np
import pandas as pd
import torch
from torch.utils.data import DataLoader, Dataset
from transformers import PatchTSTConfig, PatchTSTForPrediction

torch.manual_seed(613)


def trades(days=40):
    draw = np.random.default_rng(613)
    index = pd.date_range("2026-01-01", periods=days * 24, freq="h")
    paths = 100 + np.cumsum(draw.normal(0, 0.2, (len(index), 2)), axis=0)
    return pd.DataFrame(paths.astype("float32"), index=index, columns=["coal", "gas"])


class Windows(Dataset):
    """Past and future windows of four-hour means."""

    def __init__(self, frame, past=24, ahead=6):
        self.past, self.ahead = past, ahead
        slow = frame.resample("4h").mean()
        self.table = (slow - slow.expanding(min_periods=1).mean()) / slow.std()

    def __len__(self):
        return len(self.table) - self.past - self.ahead

    def __getitem__(self, i):
        window = self.table.iloc[i:i + self.past + self.ahead].to_numpy("float64")
        series = torch.from_numpy(np.nan_to_num(window))  # BORN
        return {"past_values": series[:self.past], "future_values": series[self.past:]}


def build():
    config = PatchTSTConfig(num_input_channels=2, context_length=24, prediction_length=6, patch_length=4, patch_stride=4, d_model=16,
                            num_attention_heads=2, num_hidden_layers=1, ffn_dim=32, dropout=0.0, head_dropout=0.0, scaling=None)
    return PatchTSTForPrediction(config)


class Trainer:
    def __init__(self, model, data):
        self.model, self.loader = model, DataLoader(data, batch_size=32, shuffle=True, generator=torch.Generator().manual_seed(0))
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def epoch(self):
        for batch in self.loader:
            loss = self.model(**batch).loss  # COLLIDES
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return loss.item()


trainer = Trainer(build(), Windows(trades()))
for _ in range(2):
    loss = trainer.epoch()
print("loss", round(loss, 3))
