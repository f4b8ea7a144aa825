"""
title: The optimizer of the first round goes on after the student was cast to bfloat16
expect: collision
thread: https://github.com/SqueezeAILab/LLM2LLM/issues/5
fix_at: a new optimizer after the cast

Expectation, written first: the student is trained in float32, then evaluated in bfloat16 on the seed questions, and
never cast back. In the second round the gradients are bfloat16 while Adam's averages are float32 from the
first, and lerp_ refuses to mix them in optimizer.step.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Student(nn.Module):
    def __init__(self, vocab=24, dim=32):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.rnn = nn.Sequential(nn.Linear(2 * dim, 64), nn.GELU(), nn.Linear(64, dim))
        self.head = nn.Linear(dim, vocab)

    def forward(self, pairs):
        return self.head(self.rnn(self.emb(pairs).flatten(1)))


class SeedData:
    def __init__(self, vocab, n):
        generator = torch.Generator().manual_seed(5)
        self.pairs = torch.randint(0, vocab, (n, 2), generator=generator)
        self.answers = self.pairs.sum(dim=1) % vocab

    def subset(self, index):
        return self.pairs[index], self.answers[index]

    def __len__(self):
        return len(self.pairs)


class Teacher:
    """Writes new questions that look like those the student got wrong."""

    def __init__(self, vocab):
        self.vocab = vocab

    def augment(self, pairs):
        new = torch.cat([pairs.flip(1), (pairs + 1) % self.vocab])
        return new, new.sum(dim=1) % self.vocab


def train(student, optimizer, pairs, answers, steps, batch_size=16):
    student.train()
    for step in range(steps):
        pick = torch.randint(0, len(pairs), (batch_size,))
        loss = F.cross_entropy(student(pairs[pick]).float(), answers[pick])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # COLLIDES
    return loss.item()


@torch.no_grad()
def evaluate(student, data, eval_dtype=torch.bfloat16):  # BORN
    student.eval()
    student.to(eval_dtype)  # BORN
    prediction = student(data.pairs).argmax(dim=-1)
    return (prediction != data.answers).nonzero().flatten()


def llm2llm(rounds=3, vocab=24):
    student, teacher = Student(vocab), Teacher(vocab)
    data = SeedData(vocab, 64)
    pairs, answers = data.subset(torch.arange(len(data)))
    optimizer = torch.optim.AdamW(student.parameters(), lr=3e-3)
    for r in range(rounds):
        loss = train(student, optimizer, pairs, answers, steps=30)
        wrong = evaluate(student, data)  # BORN
        print("round", r, "loss", round(loss, 3), "wrong", len(wrong), "of", len(data))
        if len(wrong) == 0:
            break
        new_pairs, new_answers = teacher.augment(data.pairs[wrong])
        pairs, answers = torch.cat([pairs, new_pairs]), torch.cat([answers, new_answers])


if __name__ == "__main__":
    torch.manual_seed(2)
    llm2llm()
