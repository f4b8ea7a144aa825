"""
title: decode attention reads other requests' KV once the cache has many slots
expect: silent:integer-overflow|overflow|wraparound
thread: https://github.com/ModelTC/LightLLM/pull/1013
measured: per-request error 0.00 0.00 0.00 2.29 2.00 1.80
widened: per-request error 0.00 0.00 0.00 0.00 0.00 0.00; innocent: per-request error 0.00 0.00 0.00 2.29 2.00 1.80
suspect: 68 range (request numbers below 64)

Expectation, written first: the memory indices are int32 and are multiplied by the byte stride of a slot in int32, so
every slot above 32767 gets an offset that wraps to a negative number and reads another slot. Remedy: int64 for the
memory index before the product. The request numbers in int32 are harmless.
"""
import torch


class MemoryManager:
    def __init__(self, size, head_num, head_dim):
        self.size = size
        self.kv_buffer = torch.zeros(size, head_num, head_dim)
        self.mem_state = torch.arange(size, dtype=torch.int32)  # BORN
        self.cursor = 0
        self.slot_stride = 65536

    def alloc(self, need):
        index = self.mem_state[self.cursor:self.cursor + need]
        self.cursor += need
        return index

    def offsets(self, mem_index):
        return mem_index * self.slot_stride  # BORN

    def gather(self, offset):
        return self.kv_buffer[torch.div(offset, self.slot_stride, rounding_mode="floor").long()]


class ReqManager:
    def __init__(self, max_request_num, max_sequence_length):
        self.req_to_token_indexs = torch.zeros(max_request_num, max_sequence_length, dtype=torch.int32)  # BORN
        self.lengths = torch.zeros(max_request_num, dtype=torch.int64)

    def append(self, req, mem_index):
        start = int(self.lengths[req])
        self.req_to_token_indexs[req, start:start + len(mem_index)] = mem_index
        self.lengths[req] = start + len(mem_index)


def token_decode_attention(q, b_req_idx, req_manager, mem_manager):
    outs = []
    for row, req in enumerate(b_req_idx):
        length = int(req_manager.lengths[req])
        mem_index = req_manager.req_to_token_indexs[req, :length]
        kv = mem_manager.gather(mem_manager.offsets(mem_index))
        scores = torch.einsum("hd,nhd->hn", q[row], kv) / kv.shape[-1] ** 0.5
        outs.append(torch.einsum("hn,nhd->hd", scores.softmax(-1), kv))
    return torch.stack(outs)


@torch.no_grad()
def main():
    torch.manual_seed(1013)
    mem_manager = MemoryManager(size=48000, head_num=2, head_dim=4)
    req_manager = ReqManager(max_request_num=64, max_sequence_length=1024)
    keys = torch.randn(64, 2, 4)
    for req in range(64):
        mem_index = mem_manager.alloc(700)
        mem_manager.kv_buffer[mem_index.long()] = keys[req]
        req_manager.append(req, mem_index)
    b_req_idx = torch.tensor([3, 21, 40, 49, 55, 60], dtype=torch.int32)
    out = token_decode_attention(torch.randn(6, 2, 4), b_req_idx, req_manager, mem_manager)
    error = (out - keys[b_req_idx.long()]).abs().amax(dim=(1, 2))
    print("per-request error", " ".join(f"{e:.2f}" for e in error))


main()
