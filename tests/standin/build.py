"""Compiles the stand-in device, once for each torch and text of it, and registers it as ``standin``."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

SOURCE = Path(__file__).with_name("standin.cpp")
NAME = "standin"


def compiler() -> str | None:
    return os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")


def built(folder: Path) -> Path:
    """The compiled library; made if it is not there. Raises CalledProcessError, with the compiler's words, where that fails."""
    import torch
    from torch.utils import cpp_extension

    key = hashlib.sha256(SOURCE.read_bytes() + torch.__version__.encode()).hexdigest()[:16]
    library = folder / f"standin-{key}.so"
    if library.exists():
        return library
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f".{library.name}.{os.getpid()}"
    includes = [f"-I{path}" for path in cpp_extension.include_paths()]
    libraries = [f"-L{path}" for path in cpp_extension.library_paths()]
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    command = [compiler() or "c++", "-std=c++20", "-O0", "-w", "-shared", "-fPIC", abi, *includes, str(SOURCE)]
    command += ["-o", str(part), *libraries, "-ltorch", "-ltorch_cpu", "-lc10"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    os.replace(part, library)
    return library


class Module(ModuleType):
    """What ``torch.standin`` is: what torch asks of a device's module."""

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return True

    def current_device(self) -> int:
        return 0

    def device_count(self) -> int:
        return 2

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed_all(self, seed: int) -> None:
        pass

    def get_amp_supported_dtype(self) -> list:
        import torch

        return [torch.float16, torch.bfloat16]

    def waits(self) -> int:
        """How often the program would have waited for a real device so far."""
        import torch

        return torch.ops.standin.waits()


def register(library: Path) -> None:
    import torch

    torch.ops.load_library(str(library))
    torch.utils.rename_privateuse1_backend(NAME)
    torch._register_device_module(NAME, Module(f"torch.{NAME}"))
    torch.utils.generate_methods_for_privateuse1_backend()


if __name__ == "__main__":
    try:
        print(built(Path(sys.argv[1])))
    except subprocess.CalledProcessError as failed:
        sys.exit(failed.stderr)
