"""
title: Gradients travel in float16, divided by the world size before the sum
expect: clean
thread: https://github.com/pytorch/pytorch/pull/59522
measured: step 0 loss 46.06 with fp16 compression 46.06 / step 5 loss 36.88 with fp16 compression 36.88 / step 11 loss 30.46 with fp16 compression 30.46
suspect: 52 (gradients of about 0.1 to 10 fit in half, and the sum cannot overflow any more)

Expectation, written first: The hook casts the bucket to float16, divides by the world size first, sums, and casts
back. The gradients are of moderate size, each is right to a thousandth, and the noise of the batches is far
larger. The losses printed to two decimals are those of an uncompressed run.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class GradBucket:
    def __init__(self, params):
        self.params = params
        self._buffer = torch.cat([p.grad.flatten() for p in params])

    def buffer(self):
        return self._buffer

    def write_back(self, tensor):
        for p, part in zip(self.params, tensor.split([p.numel() for p in self.params])):
            p.grad.copy_(part.view_as(p))


class ProcessGroup:
    """All ranks live in one process; all_reduce sums what they put in."""

    def __init__(self, world_size):
        self.world_size = world_size

    def size(self):
        return self.world_size

    def all_reduce(self, tensors):
        total = tensors[0].clone()
        for tensor in tensors[1:]:
            total += tensor
        return total


def allreduce_hook(process_group, buckets):
    return process_group.all_reduce([b.buffer() / process_group.size() for b in buckets])


def fp16_compress_hook(process_group, buckets):
    world_size = process_group.size()
    compressed = [b.buffer().to(torch.float16).div_(world_size) for b in buckets]
    return process_group.all_reduce(compressed).to(buckets[0].buffer().dtype)


class DistributedDataParallel:
    def __init__(self, build, process_group, hook):
        self.replicas = [build() for _ in range(process_group.size())]
        for replica in self.replicas[1:]:
            replica.load_state_dict(self.replicas[0].state_dict())
        self.process_group, self.hook = process_group, hook
        self.optimizers = [torch.optim.SGD(r.parameters(), lr=0.02) for r in self.replicas]

    def step(self, batches):
        losses = []
        for replica, (x, y) in zip(self.replicas, batches):
            replica.zero_grad()
            loss = F.mse_loss(replica(x), y)
            loss.backward()
            losses.append(loss.item())
        buckets = [GradBucket(list(r.parameters())) for r in self.replicas]
        reduced = self.hook(self.process_group, buckets)
        for bucket, optimizer in zip(buckets, self.optimizers):
            bucket.write_back(reduced)
            optimizer.step()
        return sum(losses) / len(losses)


def run(hook, world_size=4, steps=12):
    torch.manual_seed(59522)
    process_group = ProcessGroup(world_size)
    ddp = DistributedDataParallel(lambda: nn.Linear(10, 3), process_group, hook)
    target = torch.randn(10, 3) * 2
    losses = []
    for _ in range(steps):
        batches = []
        for _ in range(world_size):
            x = torch.randn(16, 10)
            batches.append((x, x @ target + torch.randn(16, 3)))
        losses.append(ddp.step(batches))
    return losses


def main():
    plain, compressed = run(allreduce_hook), run(fp16_compress_hook)
    for step in (0, 5, 11):
        print(f"step {step} loss {plain[step]:.2f} with fp16 compression {compressed[step]:.2f}")


if __name__ == "__main__":
    main()
