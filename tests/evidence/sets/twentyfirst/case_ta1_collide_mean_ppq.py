"""
title: error statistics over the inputs of a quantised graph: the mean of a Slice operator's int64 starts
expect: collision
thread: https://github.com/OpenPPL/ppq/issues/409
fix_at: none

Expectation, written first: the analyser records every input of every operator, and a Slice carries int64 starts,
ends, axes and steps beside the data. The statistics subtract the two records and take a mean, which torch refuses
for int64. The difference has to be taken in float (the mean with a float dtype).
"""
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Dict, List

import torch


@dataclass
class Operation:
    name: str
    type: str
    parameters: Dict[str, torch.Tensor] = field(default_factory=dict)


def fake_quant(x, bits=8):
    scale = x.abs().max() / (2 ** (bits - 1) - 1)
    return torch.round(x / scale).clamp(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) * scale


class TorchExecutor:
    def __init__(self, graph: List[Operation], quantized: bool):
        self.graph, self.quantized = graph, quantized

    def forward(self, x, hook):
        for op in self.graph:
            if op.type == "Slice":
                inputs = [x, op.parameters["starts"], op.parameters["ends"]]
                x = x[:, int(inputs[1][0]) : int(inputs[2][0])]
            else:
                weight = op.parameters["weight"]
                if self.quantized:
                    x, weight = fake_quant(x), fake_quant(weight)
                inputs = [x, weight]
                x = torch.relu(x @ weight)
            hook(op, inputs, x)
        return x


class StatisticalErrorAnalyser:
    def __init__(self, x_fp: torch.Tensor, x_qt: torch.Tensor, op: Operation, var: str):
        self.x_fp, self.x_qt = x_fp, x_qt
        self.op, self.var = op, var

    def stat(self):
        noise = (self.x_fp - self.x_qt).flatten()  # BORN
        return {
            "Op name": self.op.name,
            "Variable": self.var,
            "Noise Mean": noise.mean().item(),  # BORN COLLIDES
            "Noise Max": noise.abs().max().item(),
            "Value Max": self.x_fp.max().item(),
        }


def statistical_analyse(graph, dataloader):
    records = {True: defaultdict(list), False: defaultdict(list)}
    for quantized in (False, True):
        executor = TorchExecutor(graph, quantized)

        def hook(op, inputs, output):
            for i, value in enumerate(inputs):
                records[quantized][(op.name, f"input {i}")].append(value)

        for batch in dataloader:
            executor.forward(batch, hook)
    ops = {op.name: op for op in graph}
    reports = []
    for key in records[False]:
        x_fp, x_qt = (torch.stack(records[q][key]) for q in (False, True))
        reports.append(StatisticalErrorAnalyser(x_fp, x_qt, ops[key[0]], key[1]).stat())
    return reports


if __name__ == "__main__":
    torch.manual_seed(0)
    conv = Operation("Gemm_0", "Gemm", {"weight": torch.randn(16, 12) * 0.3})
    cut = Operation("Slice_1", "Slice", {"starts": torch.tensor([2]), "ends": torch.tensor([10])})
    for row in statistical_analyse([conv, cut], [torch.randn(4, 16) for _ in range(3)]):
        print(row["Op name"], row["Variable"], f"{row['Noise Mean']:+.4f}", f"{row['Noise Max']:.3f}")
