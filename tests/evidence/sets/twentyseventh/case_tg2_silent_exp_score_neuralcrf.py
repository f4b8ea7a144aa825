"""
title: CRF loss written as -log(exp(labeled - unlabeled)) is infinite on long sentences
expect: silent:underflow
thread: https://github.com/allanj/pytorch_neural_crf/issues/4
measured: step 0 loss inf  step 1 loss nan  step 2 loss nan  weights finite False
widened: step 0 loss 126.65  step 1 loss 126.87  step 2 loss 124.84  weights finite True; innocent: step 0 loss inf  step 1 loss nan  step 2 loss nan  weights finite False
suspect: 41 exact (zeros and ones)

Expectation, written first: the log-probability of a whole sentence of 90 words is about -200; its exponential does not
exist in float32 and becomes 0, whose log is -inf. The difference itself was the loss already. In double the
exponential still exists. The half mask only holds zeros and ones.
"""
import torch
import torch.nn as nn


class NeuralCRF(nn.Module):
    def __init__(self, vocab_size, label_size, hidden=32):
        super().__init__()
        self.label_size = label_size
        self.embedding = nn.Embedding(vocab_size, hidden)
        self.encoder = nn.LSTM(hidden, hidden // 2, bidirectional=True, batch_first=True)
        self.hidden2tag = nn.Linear(hidden, label_size)
        self.transition = nn.Parameter(torch.randn(label_size, label_size) * 0.1)

    def forward_unlabeled(self, emissions, mask):
        alpha = emissions[:, 0]
        for t in range(1, emissions.size(1)):
            scores = alpha.unsqueeze(2) + self.transition + emissions[:, t].unsqueeze(1)
            new = torch.logsumexp(scores, dim=1)
            keep = mask[:, t].bool().unsqueeze(1)
            alpha = torch.where(keep, new, alpha)
        return torch.logsumexp(alpha, dim=1)

    def forward_labeled(self, emissions, tags, mask):
        picked = emissions.gather(2, tags.unsqueeze(2)).squeeze(2) * mask.to(emissions.dtype)
        moves = self.transition[tags[:, :-1], tags[:, 1:]] * mask[:, 1:].to(emissions.dtype)
        return picked.sum(1) + moves.sum(1)

    def forward(self, words, lengths, tags):
        mask = (torch.arange(words.size(1)) < lengths.unsqueeze(1)).half()
        emissions = self.hidden2tag(self.encoder(self.embedding(words))[0])
        unlabeled_score = self.forward_unlabeled(emissions, mask)
        labeled_score = self.forward_labeled(emissions, tags, mask)
        p = torch.exp(labeled_score - unlabeled_score)  # BORN
        return -torch.log(p).mean()


def batches(generator, longest):
    lengths = torch.tensor([longest, longest - 20, longest - 35, 12])
    words = torch.randint(0, 50, (4, longest), generator=generator)
    tags = words % 9
    return words, lengths, tags


def main():
    torch.manual_seed(4)
    model = NeuralCRF(50, 9)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(4)
    for step in range(3):
        words, lengths, tags = batches(generator, 90)
        optimizer.zero_grad()
        loss = model(words, lengths, tags)
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.2f}", end="  ")
    print(f"weights finite {all(p.isfinite().all().item() for p in model.parameters())}")


main()
