"""
title: an AdamW with float32 masters keeps its step count in the parameter's bfloat16
expect: silent:lost-update|precision-loss
modes: diagnose

After vllm-project/speculators#411 ("cast step counters back to float32") and pytorch/pytorch#74424. 256 + 1 is 256 in bfloat16: from
then on the bias correction stands still at 1 - 0.999**256 = 0.226, where it should be 0.34 at step 420: the denominator is 1.23
times too large there (1.7 at step 1,000), the steps too small; loss 0.273, repaired 0.263. Right: count in float32 or in a Python int.
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(23)


class MasterAdamW:
    def __init__(self, parameters, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, decay=0.01):
        self.parameters = list(parameters)
        self.lr, self.betas, self.eps, self.decay = lr, betas, eps, decay
        self.state = []
        for parameter in self.parameters:
            master = parameter.detach().float().clone()
            self.state.append({
                "step": torch.zeros((), dtype=parameter.dtype),  # BORN
                "master": master,
                "mean": torch.zeros_like(master),
                "square": torch.zeros_like(master),
            })

    @torch.no_grad()
    def step(self):
        one, two = self.betas
        for parameter, state in zip(self.parameters, self.state):
            grad = parameter.grad.float()
            state["step"] += 1
            state["mean"].lerp_(grad, 1 - one)
            state["square"].mul_(two).addcmul_(grad, grad, value=1 - two)
            step = state["step"].item()
            mean = state["mean"] / (1 - one**step)
            square = state["square"] / (1 - two**step)
            state["master"].mul_(1 - self.lr * self.decay)
            state["master"].addcdiv_(mean, square.sqrt().add_(self.eps), value=-self.lr)
            parameter.copy_(state["master"])

    def zero_grad(self):
        for parameter in self.parameters:
            parameter.grad = None


def main(steps=420):
    model = nn.Linear(8, 3).to(torch.bfloat16)
    optimizer = MasterAdamW(model.parameters())
    centres = torch.randn(3, 8)
    for number in range(1, steps + 1):
        labels = torch.randint(0, 3, (16,))
        x = (centres[labels] + torch.randn(16, 8)).to(torch.bfloat16)
        loss = F.cross_entropy(model(x).float(), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number % 140 == 0:
            print(number, "loss", round(loss.item(), 3), "counted", optimizer.state[0]["step"].item())


main()
