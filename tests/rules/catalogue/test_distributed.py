"""Collectives and gradient buckets. See `refusing` for what a program is."""

from __future__ import annotations

import contextlib
from functools import partial

import numpy as np
import refusing
import torch
import torch.distributed as dist
from refusing import Program, check, every
from torch import nn

f8, f16, bf16, f32, f64, i64 = (
    torch.float8_e4m3fn,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.int64,
)

PROGRAMS: list[Program] = []
refuses = partial(refusing.refuses, PROGRAMS)


@contextlib.contextmanager
def one_process():
    """A process group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


@refuses("dist.c10d_mixed", "DT117 all_gather: tensor_list[0] float16 3")
def all_gather():
    with one_process():
        model = nn.Linear(3, 1)
        mine = model.weight.data.flatten()
        everyone = [torch.empty(3, dtype=f16)]  # BORN
        dist.all_gather(everyone, mine)  # COLLIDES


@refuses("dist.tensor_type", "DT117 all_gather_single: output_tensor float16 3")
def all_gather_into_tensor():
    with one_process():
        model = nn.Linear(3, 1)
        shard = model.weight.data.flatten()
        whole = torch.empty(3, dtype=f16)  # BORN
        dist.all_gather_into_tensor(whole, shard)  # COLLIDES


@refuses("dist.c10d_mixed", "DT117 all_to_all_single: output bfloat16 3")
def all_to_all():
    with one_process():
        model = nn.Linear(3, 1)
        routed = model.weight.data.flatten()
        arrived = torch.empty(3, dtype=bf16)  # BORN
        dist.all_to_all_single(arrived, routed)  # COLLIDES


@refuses("dist.c10d_mixed", "DT117 all_reduce_coalesced: tensors[1] float64 1")
def all_reduce_coalesced():
    with one_process():
        losses = torch.randn(3)
        count = torch.from_numpy(np.ones(1))  # BORN
        dist.all_reduce_coalesced([losses, count])  # COLLIDES


@refuses("dist.kernel", "DT117 all_reduce: tensor float8_e4m3fn 3")
def all_reduce():
    with one_process():
        gradient = torch.ones(3).to(f8)  # BORN
        dist.all_reduce(gradient)  # COLLIDES


@refuses("dist.expected_got", "DT117 backward: weight.grad float16 1x4", phase="backward")
def ddp():
    with one_process():
        model = nn.parallel.DistributedDataParallel(nn.Linear(4, 1))
        with model.no_sync():
            model(torch.randn(2, 4)).sum().backward()
        for p in model.parameters():
            p.grad.data = p.grad.data.half()  # BORN
        model(torch.randn(2, 4)).sum().backward()  # COLLIDES


@refuses("dist.fsdp1_uniform", "DT117 FullyShardedDataParallel: 1.weight float16 4x4")
def fsdp():
    from torch.distributed.fsdp import FullyShardedDataParallel

    with one_process():
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
        model[1].half()  # BORN
        FullyShardedDataParallel(model, device_id=torch.device("cpu"))  # COLLIDES


@refuses("dist.fsdp1_uniform", "DT117 FSDP: 0.1.weight float16 4x4")
def fsdp_by_a_policy():
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    with one_process():
        block = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
        block[1].half()  # BORN
        model = nn.Sequential(block, nn.Linear(4, 4))
        policy = ModuleWrapPolicy({nn.Sequential})
        FSDP(model, auto_wrap_policy=policy, device_id=torch.device("cpu"))  # COLLIDES


@refuses("dist.fsdp1_int", "DT117 FullyShardedDataParallel: zeros int8 4")
def fsdp_integer():
    from torch.distributed.fsdp import FullyShardedDataParallel

    with one_process():
        model = nn.Module()
        model.zeros = nn.Parameter(torch.zeros(4, dtype=torch.int8), requires_grad=False)  # BORN
        model.head = nn.Linear(4, 4)
        FullyShardedDataParallel(model, device_id=torch.device("cpu"))  # COLLIDES


@refuses("dist.fsdp2_uniform", "DT117 FSDPSequential: 1.weight float16 4x4", module="model")
def fully_shard():
    from torch.distributed.fsdp import fully_shard

    with one_process():
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
        model[1].half()  # BORN
        fully_shard(model, mesh=dist.init_device_mesh("cpu", (1,)))
        model(torch.randn(2, 4))  # COLLIDES


@every(PROGRAMS)
def test_names_the_line(program):
    check(program)


def test_no_process_group_is_left():
    assert not dist.is_initialized()
