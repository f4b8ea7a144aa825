"""
title: original node ids kept as a node feature come back with duplicates
expect: silent:downcast|round-trip|precision-loss
thread: https://github.com/awslabs/graphstorm/issues/704
measured: nodes 4096 unique ids 1025 catalogue entries found 1024 / mean degree 9.77 labeled 1232
widened: nodes 4096 unique ids 4096 catalogue entries found 4096 / mean degree 9.77 labeled 1232; innocent: nodes 4096 unique ids 1025 catalogue entries found 1024 / mean degree 9.77 labeled 1232
suspect: 50 exact (degrees are integers below 2048)

Expectation, written first: graph construction turns every numeric feature into float32. Ids near 67 million need 27 bits
and a float32 has 24, so neighbouring ids share one value and the cast back to int64 gives duplicates. Remedy: keep
integer features as int64. The degree feature in float16 is exact.
"""
import torch


class NoopTransform:
    """The feature transformation that is used when the config names none."""

    def __init__(self, name):
        self.name = name

    def __call__(self, feats):
        if feats.dtype == torch.bool:
            return feats.to(torch.int8)
        return feats.to(torch.float32)  # BORN


class GConstruct:
    def __init__(self, node_conf):
        self.transforms = {name: NoopTransform(name) for name in node_conf}

    def process_node_data(self, node_data):
        return {name: self.transforms[name](feats) for name, feats in node_data.items()}

    def partition(self, feats, num_parts):
        size = len(next(iter(feats.values()))) // num_parts
        return [
            {name: f[part * size:(part + 1) * size] for name, f in feats.items()}
            for part in range(num_parts)
        ]


def read_raw(num_nodes, num_edges, generator):
    first = 67_000_000
    node_id = first + torch.arange(num_nodes)
    src = torch.randint(0, num_nodes, (num_edges,), generator=generator)
    degree = torch.bincount(src, minlength=num_nodes)
    return {
        "orig_id": node_id,
        "degree": degree.to(torch.float16),
        "labeled": torch.rand(num_nodes, generator=generator) < 0.3,
    }


def load_partitions(parts):
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def join_with_catalogue(node_feat, catalogue):
    ids = node_feat["orig_id"].long()
    known = torch.isin(catalogue, ids)
    return ids, known


def main():
    generator = torch.Generator().manual_seed(704)
    raw = read_raw(4096, 40_000, generator)
    parts = GConstruct(raw.keys()).partition(GConstruct(raw.keys()).process_node_data(raw), num_parts=4)
    node_feat = load_partitions(parts)
    ids, known = join_with_catalogue(node_feat, raw["orig_id"])
    print(f"nodes {len(ids)} unique ids {ids.unique().numel()} catalogue entries found {known.sum().item()}")
    print(f"mean degree {node_feat['degree'].mean():.2f} labeled {int(node_feat['labeled'].sum())}")


if __name__ == "__main__":
    main()
