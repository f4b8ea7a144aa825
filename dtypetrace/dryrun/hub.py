"""``from_pretrained`` without weights: a model is made from its configuration, in the dtype that it would be loaded in.

Only transformers' and diffusers' base classes are replaced; all that is made from them (Auto classes, pipelines) goes
through those.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from .pretend import Replace

_WHERE = (
    "cache_dir", "force_download", "local_files_only", "token", "revision", "subfolder", "proxies", "trust_remote_code",
)  # fmt: skip
"""Arguments of ``from_pretrained`` that say where the files are."""
_OF_LOADING = (
    "variant", "use_safetensors", "weights_only", "low_cpu_mem_usage", "ignore_mismatched_sizes", "max_memory",
    "offload_folder", "offload_buffers", "offload_state_dict", "output_loading_info", "key_mapping", "from_flax",
    "from_tf", "_fast_init", "keep_in_fp32_modules", "disable_mmap", "tp_plan", "adapter_kwargs", "state_dict",
    "from_auto_class", "_from_auto", "_from_pipeline", "_commit_hash", "dduf_entries", "parallel_config",
    "user_agent", "resume_download",
)  # fmt: skip
"""Arguments that say how weights are read."""
MODULES: dict[str, Callable[[Any, Replace], None]] = {}
"""What is replaced in a module, by the module's name."""


class NotPretendedError(NotImplementedError):
    """The program asks for a way of loading that a dry run has no stand-in for."""


def _transformers(module: Any, replace: Replace) -> None:
    base = module.PreTrainedModel

    def from_pretrained(cls: Any, /, name: Any, *args: Any, config: Any = None, **kwargs: Any) -> Any:
        where = {k: kwargs.pop(k) for k in _WHERE if k in kwargs}
        device_map, info = kwargs.pop("device_map", None), kwargs.get("output_loading_info")
        dtype = kwargs.pop("dtype", kwargs.pop("torch_dtype", None))
        _refuse_quantized(kwargs.pop("quantization_config", None))
        for key in _OF_LOADING:
            kwargs.pop(key, None)
        options = {k: kwargs.pop(k) for k in ("attn_implementation",) if k in kwargs}
        if not isinstance(config, cls.config_class):
            config, kwargs = cls.config_class.from_pretrained(
                config if config is not None else name, return_unused_kwargs=True, **where, **kwargs
            )
        _refuse_quantized(getattr(config, "quantization_config", None))
        chosen = _named(dtype) or _named(config.dtype) or _of_files(name, where.get("subfolder")) or torch.float32
        model = cls._from_config(config, dtype=chosen, **options, **kwargs)
        kept = set(getattr(model, "_keep_in_fp32_modules_strict", None) or ())
        if chosen is torch.float16:
            kept |= set(getattr(model, "_keep_in_fp32_modules", None) or ())
        _keep_wide(model, kept)
        return _loaded(model, device_map, info)

    replace(base, "from_pretrained", classmethod(from_pretrained))


def _diffusers(module: Any, replace: Replace) -> None:
    def from_pretrained(cls: Any, /, name: Any, **kwargs: Any) -> Any:
        where = {k: kwargs.pop(k) for k in _WHERE if k in kwargs}
        device_map, info = kwargs.pop("device_map", None), kwargs.get("output_loading_info")
        dtype = _named(kwargs.pop("torch_dtype", None))
        _refuse_quantized(kwargs.pop("quantization_config", None))
        for key in _OF_LOADING:
            kwargs.pop(key, None)
        model = cls.from_config(cls.load_config(name, **where), **kwargs)
        if dtype is not None:
            model.to(dtype=dtype)
            _keep_wide(model, getattr(model, "_keep_in_fp32_modules", None) or ())
        return _loaded(model, device_map, info)

    replace(module.ModelMixin, "from_pretrained", classmethod(from_pretrained))


MODULES["transformers.modeling_utils"] = _transformers
MODULES["diffusers.models.modeling_utils"] = _diffusers


def _loaded(model: Any, device_map: Any, info: Any) -> Any:
    model.eval()
    if device_map is not None and device_map != "cpu":
        model.to("cuda")
    return (
        (model, {"missing_keys": [], "unexpected_keys": [], "mismatched_keys": [], "error_msgs": []}) if info else model
    )


def _refuse_quantized(config: Any) -> None:
    if config is not None:
        raise NotPretendedError("quantized weights (quantization_config) have no meta kernel")


def _named(dtype: Any) -> torch.dtype | None:
    """A dtype from its name; None for ``"auto"``."""
    if isinstance(dtype, str):
        dtype = getattr(torch, dtype, None)
    return dtype if isinstance(dtype, torch.dtype) else None


def _keep_wide(model: torch.nn.Module, names: Iterable[str]) -> None:
    """Leaves the parameters of some modules in float32, as loading does."""
    kept = list(names)
    for name, parameter in model.named_parameters():
        if any(f".{part}." in f".{name}." for part in kept):
            parameter.data = parameter.data.to(torch.float32)


_HEADER_DTYPES = {
    "F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64, "C64": torch.complex64,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2": torch.float8_e5m2, "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "BOOL": torch.bool,
    "U64": torch.uint64, "U32": torch.uint32, "U16": torch.uint16, "U8": torch.uint8,
}  # fmt: skip
"""The names of dtypes in the header of a safetensors file."""


def _of_files(name: Any, subfolder: str | None) -> torch.dtype | None:
    """The dtype of the first floating weight in a local folder's safetensors files, from their headers."""
    folder = Path(str(name)) / (subfolder or "")
    for file in sorted(folder.glob("*.safetensors")) if folder.is_dir() else ():
        for dtype, _ in header(file).values():
            if dtype.is_floating_point:
                return dtype
    return None


def header(file: Path) -> dict[str, tuple[torch.dtype, list[int]]]:
    """Dtype and shape of each tensor in a safetensors file. Tensors in a dtype that torch has no name for are left
    out."""
    with file.open("rb") as stream:
        (size,) = struct.unpack("<Q", stream.read(8))
        found: dict[str, dict[str, Any]] = json.loads(stream.read(size))
    return {
        name: (_HEADER_DTYPES[entry["dtype"]], entry["shape"])
        for name, entry in found.items()
        if entry.get("dtype") in _HEADER_DTYPES
    }
