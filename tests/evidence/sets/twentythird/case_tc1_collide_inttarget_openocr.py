"""
title: SMTR decoder loss: int32 sub-string labels from the encoder reach cross_entropy
expect: collision
thread: https://github.com/Topdu/OpenOCR/issues/68
fix_at:

Expectation, written first: the label encoder packs the sub-string answers as int32 arrays and the collator keeps that dtype. cross_entropy with class
indices wants Long (or Byte) targets and refuses Int. The encoder should produce int64, or the loss should cast the labels.
"""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class SMTRLabelEncode:
    BOS, EOS, PAD = "<s>", "</s>", "<pad>"

    def __init__(self, charset, max_text_length=8, sub_str_len=3):
        chars = [self.EOS] + list(charset) + [self.BOS, self.PAD]
        self.dict = {c: i for i, c in enumerate(chars)}
        self.num_classes = len(chars)
        self.max_text_length, self.sub_str_len = max_text_length, sub_str_len

    def __call__(self, text):
        pad = self.dict[self.PAD]
        codes = [self.dict[self.BOS]] * self.sub_str_len + [self.dict[c] for c in text] + [self.dict[self.EOS]]
        subs, answers = [], []
        for i in range(self.sub_str_len, len(codes)):
            subs.append(codes[i - self.sub_str_len : i])
            answers.append(codes[i])
        missing = self.max_text_length + 1 - len(answers)
        subs += [[pad] * self.sub_str_len] * missing
        answers += [pad] * missing
        return np.array(subs, dtype=np.int64), np.array(answers, dtype=np.int32)  # BORN


class TextDataset(Dataset):
    def __init__(self, words, encoder):
        self.words, self.encoder = words, encoder
        self.images = np.random.default_rng(0).random((len(words), 1, 8, 24), dtype=np.float32)

    def __len__(self):
        return len(self.words)

    def __getitem__(self, i):
        subs, answers = self.encoder(self.words[i])
        return self.images[i], subs, answers


class SMTRDecoder(nn.Module):
    def __init__(self, num_classes, ignore_index, dim=16):
        super().__init__()
        self.ignore_index = ignore_index
        self.visual = nn.Linear(8 * 24, dim)
        self.char_embed = nn.Embedding(num_classes, dim)
        self.ques_head = nn.Linear(dim, num_classes)

    def forward(self, images, subs):
        visual = self.visual(images.flatten(1)).unsqueeze(1)
        return self.ques_head(torch.tanh(self.char_embed(subs).mean(dim=2) + visual))

    def compute_loss(self, answer_pred, label):
        label = label.flatten(0, 1)
        return F.cross_entropy(answer_pred.flatten(0, 1), label, ignore_index=self.ignore_index)  # BORN COLLIDES


def main():
    torch.manual_seed(0)
    encoder = SMTRLabelEncode("abcdefghijklmnopqrstuvwxyz")
    loader = DataLoader(TextDataset(["street", "cafe", "open", "bakery"], encoder), batch_size=2)
    decoder = SMTRDecoder(encoder.num_classes, encoder.dict[encoder.PAD])
    optimizer = torch.optim.SGD(decoder.parameters(), lr=0.1)
    for images, subs, answers in loader:
        loss = decoder.compute_loss(decoder(images, subs), answers)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("loss", loss.item())


if __name__ == "__main__":
    main()
