"""
title: the mass of hidden paths is carried on in float16 until nothing is left; the table of moves in eighths may be half
expect: silent:underflow|precision-loss|downcast
"""
import torch

torch.manual_seed(911)


class Chain:
    def __init__(self, leaning):
        self.move = torch.full((4, 4), 0.125) + 0.5 * torch.eye(4)
        self.emit = torch.tensor([[0.4, 0.2, 0.2, 0.2], [0.1, 0.4, 0.1, 0.4], [0.2, 0.2, 0.4, 0.2], [0.1, 0.4, 0.4, 0.1]]).roll(leaning, 1)

    def sample(self, count, length):
        state, out = torch.randint(0, 4, (count,)), []
        for _ in range(length):
            out.append(torch.multinomial(self.emit[state], 1)[:, 0])
            state = torch.multinomial(self.move[state], 1)[:, 0]
        return torch.stack(out, dim=1)


def mass(chain, symbols):
    move = chain.move.half().float()
    alpha = torch.full((len(symbols), 4), 0.25)
    for t in range(symbols.shape[1]):
        alpha = (alpha @ move) * chain.emit[:, symbols[:, t]].t()
        alpha = alpha.half().float()  # BORN
    return alpha.sum(1)


chains = [Chain(0), Chain(1)]
right = 0
for label, chain in enumerate(chains):
    symbols = chain.sample(200, 20)
    scores = torch.stack([mass(c, symbols) for c in chains])
    right += (scores.argmax(0) == label).sum().item()
print("accuracy", round(right / 400, 3))
