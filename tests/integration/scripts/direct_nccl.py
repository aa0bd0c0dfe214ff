"""Ranks that call NCCL past PyTorch, as bindings of a framework's own do; rank 1 leaves one call out."""

import ctypes
import os

import torch

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
nccl = ctypes.CDLL("libnccl.so.2")


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


torch.cuda.set_device(rank)
values = torch.ones(1 << 20, device="cuda")
communicator = ctypes.c_void_p()
assert nccl.ncclCommInitRank(ctypes.byref(communicator), world, UniqueId(b"everybody"), rank) == 0


def all_reduce():
    address, stream = ctypes.c_void_p(values.data_ptr()), ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    return nccl.ncclAllReduce(address, address, ctypes.c_size_t(values.numel()), 7, 0, communicator, stream)


for step in range(3):
    if rank != 1 or step < 2:
        assert all_reduce() == 0
torch.cuda.synchronize()
