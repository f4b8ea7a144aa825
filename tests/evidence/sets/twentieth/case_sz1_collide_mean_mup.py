"""
title: the coordinate check of a language model stops: the mean of the embedding's input cannot be taken
expect: collision
thread: https://github.com/microsoft/mup/pull/33

Expectation, written first: the coordinate check hooks every module and records the l1 size of its outputs and inputs. The input of the
embedding are token ids, int64, and `mean` cannot infer a floating result from Long. The statistic must name its dtype (as the pull request
does) or convert first; the ids themselves are right as they are.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

FDICT = {
    "l1": lambda x: torch.abs(x).mean(),  # BORN COLLIDES
}


class Decoder(nn.Module):
    def __init__(self, width, vocab=48):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.mix = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.readout = nn.Linear(width, vocab, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        x = x + torch.tanh(self.mix(x.cumsum(dim=1) / torch.arange(1, ids.size(1) + 1).view(1, -1, 1)))
        return self.readout(self.norm(x))


def convert_fdict(d):
    return {k: (FDICT[v] if isinstance(v, str) else v) for k, v in d.items()}


def record_coords(records, width, modulename, t, output_fdict, input_fdict):
    def stat(ret, value, fdict, label):
        if isinstance(value, (tuple, list)):
            for i, v in enumerate(value):
                stat(ret, v, fdict, f"{label}[{i}]")
        elif isinstance(value, torch.Tensor):
            for fname, f in fdict.items():
                ret[f"{fname} {label}"] = f(value).item()

    def f(module, input, output):
        ret = {"width": width, "module": modulename, "t": t}
        with torch.no_grad():
            stat(ret, output, output_fdict, "out")
            stat(ret, input, input_fdict, "in")
        records.append(ret)

    return f


def get_coord_data(models, dataloader, lr=0.05, nsteps=3, nseeds=1):
    records, fdict = [], convert_fdict({"l1": "l1"})
    for seed in range(nseeds):
        for width, make in models.items():
            torch.manual_seed(seed)
            model = make()
            optimizer = torch.optim.SGD(model.parameters(), lr=lr)
            for t, (data, target) in enumerate(dataloader[:nsteps], 1):
                handles = [m.register_forward_hook(record_coords(records, width, name, t, fdict, fdict))
                           for name, m in model.named_modules() if name]
                logits = model(data)
                loss = F.cross_entropy(logits.view(-1, logits.size(-1)), target.view(-1))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                for handle in handles:
                    handle.remove()
    return records


def main():
    torch.manual_seed(0)
    dataloader = [(torch.randint(0, 48, (4, 10)), torch.randint(0, 48, (4, 10))) for _ in range(3)]
    models = {width: (lambda width=width: Decoder(width)) for width in (16, 32, 64)}
    records = get_coord_data(models, dataloader)
    for row in records[-4:]:
        print(row["width"], row["module"], row["t"], {k: round(v, 4) for k, v in row.items() if " " in k})


if __name__ == "__main__":
    main()
