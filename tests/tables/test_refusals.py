"""What the texts of exceptions say: each wording that is known, each that resembles one, and the fallback.

Most texts are real: they were raised by torch 2.13 on the CPU when its operator database ran with one operand of
another dtype, or with the database's own error inputs. The rest are other devices', releases' and libraries' texts.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from dtypetrace.tables import refusals
from dtypetrace.tables.codes import TITLES
from dtypetrace.tables.refusals import Refusal, canonical, recognise


def _samples(table: str):
    """The lines ``code wants | row | op | message | what is said``: dtypes, and with a ``!`` the argument called wrong."""
    for line in table.strip().splitlines():
        if not line.startswith("#"):
            kind, pattern, op, message, said = (cell.strip() for cell in line.split("|"))
            code, wants = kind.split()
            dtypes = dict(word.split("=") for word in said.split() if "=" in word)
            argument = next((word[:-1] for word in said.split() if word.endswith("!")), None)
            yield Refusal(pattern, code, wants, dtypes, argument), op, message.replace("\\n", "\n")


REFUSALS = [
    *_samples(r"""
# Matmul.
DT101 agree | mm.mat1_mat2 | addmm | mat1 and mat2 must have the same dtype, but got Half and Float | mat1=float16 mat2=float32
DT101 agree | mm.mat1_mat2_alone | addmm | mat1 and mat2 must have the same dtype |
DT101 agree | mm.self_mat2 | addmm | self and mat2 must have the same dtype, but got Half and Float | self=float16 mat2=float32
DT101 agree | mm.m1_m2 | matmul | expected m1 and m2 to have the same dtype, but got: c10::Half != float | m1=float16 m2=float32
DT101 agree | mm.expected_mat1_mat2 | mm | expected mat1 and mat2 to have the same dtype, but got: float != c10::Half | mat1=float32 mat2=float16
DT101 agree | mm.addmv | addmv | addmv input tensors must have the same dtype, but got Half, Float, and Float | self=float16 mat=float32 vec=float32
DT101 agree | mm.dot | matmul | dot : expected both vectors to have same dtype, but found Half and Float | a=float16 b=float32
DT101 agree | mm.inner | inner | both inputs should have same dtype |
DT101 agree | mm.multi_dot | linalg.multi_dot | multi_dot(): all tensors must have be the same dtype but tensor 0 is c10::Half and tensor 1 float | a=float16 b=float32
DT101 agree | mm.baddbmm | baddbmm | Input dtypes must be the same, got: input c10::Half, batch1: float, batch2: float | input=float16 batch1=float32 batch2=float32
DT111 other | mm.sampled_addmm | sparse.sampled_addmm | sampled_addmm: Expected result and self to have the same dtype, but got Half and Float | out! found=float16 expected=float32
DT101 agree | mm.sampled_addmm | sparse.sampled_addmm | sampled_addmm: Expected mat1 and self to have the same dtype, but got Float and Half | a=float32 b=float16
DT121 other | mm.scaled_mm | _scaled_mm | Bias must be Float32 or BFloat16 or Half, but got Double | bias! found=float64
DT121 other | mm.scaled_mm | _scaled_mm | Expected mat1 to be Float8 matrix got BFloat16 | mat1! found=bfloat16
DT121 other | mm.scaled_mm | _grouped_mm | Expected mat_a to be Float32, BFloat16 or Float16 matrix, got Double | mat_a! found=float64
DT121 other | mm.scaled_mm | _scaled_mm | Invalid scaling configuration.\n- For TensorWise scaling, a and |
DT121 other | mm.int_mm | _int_mm | int_mm_out_cpu: Expected self dtype to be int8 or uint8 but got float | self! found=float32
# Attention.
DT103 agree | sdpa.qkv | scaled_dot_product_attention | Expected query, key, and value to have the same dtype, but got query.dtype: c10::Half key.dtype: float and value.dtype: float | query=float16 key=float32 value=float32
DT103 bool | sdpa.mask | scaled_dot_product_attention | Expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask.dtype: long int and  query.dtype: c10::Half | attn_mask! mask=int64 query=float16
DT103 agree | sdpa.mask | scaled_dot_product_attention | Expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask.dtype: double and  query.dtype: c10::Half | attn_mask! mask=float64 query=float16
DT103 bool | sdpa.mask_kind | multi_head_attention_forward | only bool and floating types of attn_mask are supported | attn_mask!
DT103 bool | sdpa.mask_kind | multi_head_attention_forward | Only float, byte, and bool types are supported for attn_mask, not torch.int64 | attn_mask! found=int64
DT103 agree | sdpa.flash_cpu | scaled_dot_product_attention | scaled_dot_product_attention_flash_attention: Attention mask is the same data type as query | attn_mask!
DT109 kernel | sdpa.flash_cpu | scaled_dot_product_attention | scaled_dot_product_attention_flash_attention: Expected data type in FP32, FP64, BF16, FP16, but got Int | found=int32
DT103 agree | xformers.qkv | memory_efficient_attention | Query/Key/Value should either all have the same dtype, or (in the quantized case) Key/Value should have dtype torch.int32\n  query.dtype: torch.float32\n  key.dtype  : torch.float32\n  value.dtype: torch.float16 | query=float32 key=float32 value=float16
DT121 other | flash.only_half | flash_attn_func | FlashAttention only support fp16 and bf16 data type |
# Convolution, normalisation, recurrent layers.
DT102 agree | conv.input_bias | conv2d | Input type (torch.FloatTensor) and bias type (torch.HalfTensor) should be the same | input=float32 bias=float16
DT102 agree | conv.input_weight | conv2d | Input type (CPUBFloat16Type) and weight type (torch.FloatTensor) should be the same | input=bfloat16 weight=float32
DT104 agree | norm.cpu_param_float | _batch_norm_with_update | mixed dtype (CPU): expect parameter to have scalar type of Float |
DT104 agree | norm.cpu_all_same | _batch_norm_with_update | mixed dtype (CPU): all inputs must share same datatype. |
DT105 agree | rnn.new | GRU | RNN input dtype (torch.float16) does not match weight dtype (torch.float32). | input=float16 weight=float32
DT105 agree | rnn.checked | LSTM | input must have the type torch.float32, got type torch.float16 | input=float16 weight=float32
DT105 agree | rnn.native | lstm | Input and hidden tensors are not the same dtype, found input tensor with Half and hidden tensor with Float | input=float16 hidden=float32
DT105 agree | rnn.native | _cudnn_rnn | Input and parameter tensors are not the same dtype, found input tensor with Float and parameter tensor with Half | input=float32 parameter=float16
DT105 agree | impl.onednn_rnn | LSTM | could not create a primitive descriptor for the LSTM forward propagation primitive. |
DT105 agree | impl.onednn_rnn | LSTM | get_mkldnn_dtype: unsupported data type |
DT109 kernel | impl.onednn_rnn | linear | get_mkldnn_dtype: unsupported data type |
DT109 kernel | impl.onednn_rnn | mkldnn_linear | itensor_view_from_dense expects float, bfloat16 or half tensor input |
# Other operations whose operands must agree.
DT108 integer | scalar.expected_integer | cross_entropy | expected scalar type Long but found Byte | expected=int64 found=uint8
DT108 bool | scalar.expected_bool | where | expected scalar type Bool but found Byte | expected=bool found=uint8
DT101 agree | scalar.expected_found | matmul | expected scalar type Float but found Half | expected=float32 found=float16
DT108 integer | scalar.expected_object_integer | cross_entropy | Expected object of scalar type Long but got scalar type Int for argument #2 'target' | target! expected=int64 found=int32
DT101 agree | scalar.expected_object_arg |  | Expected object of scalar type Float but got scalar type Half for argument #2 'mat2' in call to _th_mm | mat2! expected=float32 found=float16
DT111 other | scalar.expected_object_out | complex | Expected object of scalar type ComplexFloat but got scalar type Half for argument 'out' | out! expected=complex64 found=float16
DT106 agree | scalar.expected_object_second | complex | Expected object of scalar type Half but got scalar type Float for second argument | expected=float16 found=float32
DT108 integer | scalar.expected_object_type | nll_loss | Expected object of type torch.cuda.LongTensor but found type torch.cuda.IntTensor for argument #2 'target' | target! expected=int64 found=int32
DT101 agree | scalar.expected_object_type | addmm | Expected object of type torch.FloatTensor but found type torch.DoubleTensor for argument #4 'mat1' | mat1! expected=float32 found=float64
DT106 agree | scalar.expected_object_type | _softmax_backward_data | expected type torch.cuda.FloatTensor but got torch.cuda.HalfTensor | expected=float32 found=float16
DT106 agree | scalar.must_match_arg | embedding_bag | Expected tensor for argument #1 'weight' to have the same type as tensor for argument #1 'per_sample_weights'; but type torch.HalfTensor does not equal torch.FloatTensor (while checking arguments for embedding_bag) | a=float16 b=float32
DT108 integer | scalar.index_types | embedding | Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but got torch.FloatTensor instead | indices! found=float32
DT108 integer | scalar.index_types | embedding | Expected tensor for argument #1 'indices' to have scalar type Long; but got torch.cuda.IntTensor instead | indices! found=int32
DT109 kernel | scalar.index_types | embedding_bag | Expected tensor for argument #1 'weight' to have one of the following scalar types: Half, BFloat16, Float, Double; but got torch.IntTensor instead | weight! found=int32
DT101 agree | scalar.index_types | sparse.mm.reduce | Expected tensor for argument #1 'other' to have scalar type Half; but got torch.FloatTensor instead | other! expected=float16 found=float32
DT106 agree | mm.bilinear | bilinear | All tensors must have the same dtype, got input1: c10::Half, input2: float, weight: float, bias: float | input1=float16 input2=float32 weight=float32 bias=float32
DT111 other | mm.solve | ormqr | torch.ormqr: Expected input and result to have the same dtype, but input has dtypeFloat and result has dtype Half | out! expected=float32 found=float16
DT106 agree | mm.solve | cholesky_solve | Expected b and A to have the same dtype, but found b of type Half and A of type Float instead. | a=float16 b=float32
DT106 agree | mm.householder | linalg.householder_product | torch.linalg.householder_product: tau dtype Float does not match input dtype Half | tau=float32 input=float16
DT106 agree | norm.prelu | prelu | prelu: Type promoting not supported. Got Half and Float | input=float16 weight=float32
DT115 agree | prom.lerp | _foreach_lerp | expected dtype c10::Half for `end` but got dtype float | end! expected=float16 found=float32
DT106 agree | prom.meshgrid | meshgrid | meshgrid expects all tensors to have the same dtype |
DT106 agree | prom.meshgrid | _chunk_cat | tensors must all have the same type |
DT106 agree | prom.meshgrid | _chunk_cat | _chunk_cat expects all input tensors with the same dtype |
DT106 agree | prom.heaviside | heaviside | heaviside is not yet implemented for tensors with different dtypes. |
DT111 other | prom.histogram | histc | torch.histogram: input tensor and hist tensor should have the same dtype, but got input float and hist c10::Half | out! expected=float32 found=float16
DT106 agree | prom.histogram | histogramdd | torch.histogramdd: input tensor and bins tensors should have the same dtype, but got input with dtype c10::Half and bins for dimension 0 with dtype float | a=float16 b=float32
DT106 agree | prom.histogram | histogramdd | torch.histogramdd: if weight tensor is provided, input tensor and weight tensor should have the same dtype, but got input(float) and weight(double) | a=float32 b=float64
DT106 agree | impl.quantile | quantile | quantile() q tensor must be same dtype as the input tensor | q!
# Indexed writes.
DT107 agree | idx.index_put | _unsafe_masked_index_put_accumulate | Index put requires the source and destination dtypes match, got Half for the destination and Float for the source. | destination=float16 source=float32
DT107 agree | idx.scatter_src | scatter | scatter(): Expected self.dtype to be equal to src.dtype |
DT107 agree | idx.index_add | index_add | index_add_(): self (Half) and source (Float) must have the same scalar type | self=float16 source=float32
DT107 agree | idx.index_copy | index_copy | index_copy_(): self and source expected to have the same dtype, but got (self) Half and (source) Float | self=float16 source=float32
DT107 agree | idx.put_take | put | put_(): self and source expected to have the same dtype, but got self.dtype = Half and source.dtype = Float | self=float16 source=float32
DT111 other | idx.put_take | take | take(): self and out expected to have the same dtype, but got self.dtype = Float and out.dtype = Half | out! expected=float32 found=float16
DT107 agree | idx.masked_scatter | masked_scatter | masked_scatter: expected self and source to have same dtypes but gotHalf and Float | self=float16 source=float32
# Indices, labels, masks and conditions.
DT108 integer | idx.index_dtype | gather | gather(): Expected dtype int32/int64 for index | index!
DT108 integer | idx.index_dtype | _unsafe_masked_index | _unsafe_masked_index found unexpected index type Float | index! found=float32
DT108 bool | idx.mask_bool | masked_fill | masked_fill_ only supports boolean masks, but got mask with dtype int | mask! found=int32
DT108 bool | idx.masked_select | masked_select | masked_select: expected BoolTensor for mask | mask!
DT108 bool | idx.where_cond | where | where expected condition to be a boolean tensor, but got a tensor with dtype Int | condition! found=int32
DT108 bool | idx.where_cond | where | expected predicate to be bool, got torch.float16 | condition! found=float16
DT108 integer | idx.tensors_as_indices | __getitem__ | tensors used as indices must be long, int, byte or bool tensors |
DT108 integer | idx.only_integer | __index__ | only integer tensors of a single element can be converted to an index |
DT108 integer | idx.take_along | take_along_dim | torch.take_along_dim(): dtype of indices should be Long but got Int | indices! found=int32
DT108 integer | idx.unravel | unravel_index | expected 'indices' to be integer dtype, but got torch.float32 | indices! found=float32
DT108 integer | idx.unpool | max_unpool1d | elements in indices should be type int64 but got: Int | indices! found=int32
DT108 integer | idx.one_hot | one_hot | one_hot is only applicable to index tensor of type LongTensor. |
DT108 integer | idx.tensor_split | tensor_split | tensor_split expected tensor_indices_or_sections to have dtype of long, but got Int | tensor_indices_or_sections! found=int32
DT108 integer | idx.integral | ctc_loss | input_lengths must be integral | input_lengths!
DT108 integer | idx.integral | cov | cov(): expected fweights to have integral dtype but got fweights with Float dtype | fweights! found=float32
DT108 other | idx.pivots | lu_unpack | torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 | pivots!
DT108 other | idx.pivots | linalg.ldl_solve | torch.linalg.ldl_solve: Expected pivots to be integers. Got Float | pivots! found=float32
DT108 integer | loss.target_long_or_byte | cross_entropy | expected target dtype to be Long or Byte, but got Int | target! found=int32
DT108 integer | loss.target_long_or_byte | linear_cross_entropy | linear_cross_entropy: target dtype must be torch.int64, got torch.int32. | target! found=int32
DT108 integer | loss.nll_cuda_int | cross_entropy | "nll_loss_forward_reduce_cuda_kernel_2d_index" not implemented for 'Int' | target! found=int32
DT108 bool | impl.invert | __invert__ | ~ (operator.invert) is only implemented on integer and Boolean-type tensors |
# Losses and their targets.
DT113 float | loss.prob_target | linear_cross_entropy | Expected floating point type for target with class probabilities, got Int | target! found=int32
DT113 float | loss.kl | kl_div | kl_div: Integral inputs not supported. |
DT109 kernel | loss.kl | kl_div | kl_div: Complex inputs not supported. |
DT113 float | prom.result_type | binary_cross_entropy_with_logits | result type Float can't be cast to the desired output type Long | target! result=float32 out=int64
DT113 agree | prom.found_dtype | binary_cross_entropy | Found dtype Float but expected Half | found=float32 expected=float16
DT106 agree | prom.found_dtype | abs | Found dtype Half but expected Float | found=float16 expected=float32
DT113 agree | prom.expected_got_dtype | backward | expected dtype Double but got dtype Float | expected=float64 found=float32
DT106 agree | prom.expected_got_dtype | gelu_backward | expected dtype Double but got dtype Float | expected=float64 found=float32
# Loss scaler, gradients, optimizer.
DT116 kernel | impl.not_implemented_for | _amp_foreach_non_finite_check_and_unscale_ | "_amp_foreach_non_finite_check_and_unscale_cpu" not implemented for 'Long' | found=int64
DT116 other | opt.unscale_fp16 | unscale_ | Attempting to unscale FP16 gradients. | found=float16
DT114 agree | grad.assign |  | attempting to assign a gradient with dtype 'c10::Half' to a tensor with grad_dtype 'Float'. | grad=float16 tensor=float32
DT114 other | grad.assign |  | Cannot set grad_dtype to 'Float' because there is already a gradient with dtype 'Half'. | tensor=float32 grad=float16
DT114 agree | grad.hook_type | backward | hook '<lambda>' has changed the type of value (was torch.FloatTensor got torch.HalfTensor) | was=float32 got=float16
DT114 agree | grad.invalid | backward | Function AddBackward0 returned an invalid gradient at index 1 - expected type torch.cuda.HalfTensor but got torch.cuda.FloatTensor | expected=float16 found=float32
DT114 other | grad.implicit_complex | backward | grad can be implicitly created only for real scalar outputs but got torch.complex64 | found=complex64
DT114 agree | grad.ckpt_metadata | backward | torch.utils.checkpoint: Recomputed values for the following tensors have different metadata than during the forward pass.\ntensor at position 0:\nsaved metadata: {'shape': torch.Size([4, 4]), 'dtype': torch.float32, 'device': device(type='cpu')}\nrecomputed metadata: {'shape': torch.Size([4, 4]), 'dtype': torch.float64, | saved=float32 recomputed=float64
DT115 agree | opt.fused_state | AdamW | params, grads, exp_avgs, and exp_avg_sqs must have same dtype, device, and layout |
DT115 agree | opt.same_index | ASGD | Tensors of the same index must be on the same device and the same dtype |
DT115 float | opt.fused_supported | AdamW | `fused=True` requires all the params to be floating point Tensors of supported devices: ['cuda', 'xpu', 'cpu'] but torch.int64 and cuda | found=int64
# Distributed.
DT117 agree | dist.fsdp1_uniform |  | Must flatten tensors with uniform dtype but got torch.bfloat16 and torch.float32 | a=bfloat16 b=float32
DT117 agree | dist.fsdp1_uniform_old |  | `FlatParameter` requires uniform dtype but got torch.float16 and torch.float32 | a=float16 b=float32
DT117 float | dist.fsdp1_int |  | Cannot flatten integer dtype tensors |
DT117 agree | dist.fsdp2_uniform |  | FSDP expects uniform original parameter dtype but got {torch.float32, torch.bfloat16} | a=float32 b=bfloat16
DT117 agree | dist.fsdp2_grad |  | FSDP reduce-scatter expects uniform gradient dtype but got {torch.bfloat16, torch.float32} | a=bfloat16 b=float32
DT117 agree | dist.c10d_mixed | all_reduce | Invalid usage of tensors with different dtypesFound torch.float32 and  torch.float16 | a=float32 b=float16
DT117 agree | dist.tensor_type | all_gather_single | ProcessGroupGloo::allgather: invalid tensor type at index 0 (expected TensorOptions(dtype=float, device=cpu, layout=Strided, requires_grad=false (default), pinned_memory=false (default), memory_format=(nullopt)), got TensorOptions(dtype=c10::Half, device=cpu, layout=Strided, requires_grad=false (default), pinned_memory=false (default), memory_format=(nullopt))) | expected=float32 found=float16
DT117 agree | dist.output_same_type | all_gather_into_tensor | output tensor must have the same type as input tensor |
DT117 agree | dist.output_same_type | all_reduce_coalesced | Tensors must have identical type |
DT117 agree | dist.bucket |  | All parameters in a bucket must have the same dtype. |
DT117 agree | dist.expected_got | backward | Expected BFloat16, got Float | expected=bfloat16 found=float32
DT117 kernel | dist.kernel | all_reduce | Input tensor data type is not supported for NCCL process group: Short | found=int16
DT117 kernel | dist.kernel | all_reduce | Invalid scalar type |
# Autocast, parameters, leaving torch.
DT118 agree | prom.prioritize | cat | Unexpected floating ScalarType in at::autocast::prioritize |
DT118 other | loss.bce_autocast | binary_cross_entropy | torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast. |
DT118 kernel | autocast.no_bf16 |  | Current CUDA Device does not support bfloat16. Please switch dtype to float16. | found=bfloat16
DT118 other | lib.deepspeed_autocast |  | torch.autocast is enabled outside DeepSpeed, but not in the DeepSpeed |
DT119 float | grad.requires_grad_int | Linear | Only Tensors of floating point and complex dtype can require gradients |
DT119 float | grad.data_set |  | data set to a tensor that requires gradients must be floating point or complex dtype |
DT119 float | mod.to_int | to | nn.Module.to only accepts floating point or complex dtypes, but got desired dtype=torch.int32 | found=int32
DT119 float | mod.default_dtype | set_default_dtype | only floating-point types are supported as the default type |
DT120 kernel | impl.mps64 | to | Cannot convert a MPS Tensor to float64 dtype as the MPS framework | found=float64
DT120 kernel | impl.mps64 | to | Trying to convert Double to the MPS backend but it does not have support for that dtype. | found=float64
DT120 kernel | impl.mps64 | to | BFloat16 is not supported on MPS | found=bfloat16
DT120 kernel | impl.got_unsupported_scalar | numpy | Got unsupported ScalarType BFloat16 | found=bfloat16
DT120 other | impl.from_numpy | from_numpy | can't convert np.ndarray of type numpy.str_. The only supported types are: |
DT120 kernel | impl.dlpack | __dlpack__ | Bool type is not supported by dlpack | found=bool
# Scalars that do not fit, promotions, destinations.
DT110 fits | val.overflow | _foreach_add | value cannot be converted to type c10::Half without overflow | type=float16
DT110 fits | val.kind | _foreach_add | For integral input tensors, argument alpha must not be a floating point number. | alpha!
DT110 fits | val.kind | index_fill | index_fill_(): Converting complex Scalar to non-complex type is not supported |
DT110 fits | val.bounds | randint_like | to - 1 is out of bounds for bool | to! type=bool
DT110 fits | val.bounds | softshrink | lambda must be in range [0, 65504] for input dtype Half, but found 1e+43 | lambda! type=float16
DT112 agree | prom.float8 | add | Promotion for Float8 Types is not supported, attempted to promote Float8_e4m3fn and Float | a=float8_e4m3fn b=float32
DT112 agree | prom.float4 | add | Promotion for uint16, uint32, uint64 types is not supported, attempted to promote UInt16 and Short | a=uint16 b=int16
DT112 other | prom.float4 | add | ix_a != -1 INTERNAL ASSERT FAILED at "/__w/pytorch/pytorch/c10/core/ScalarType.cpp":103, |
DT112 other | prom.inferred | linspace | torch.linspace(): inferred dtype c10::complex<float> can't be safely cast to passed dtype Float | found=complex64 expected=float32
DT112 other | mod.view_dtype | view | torch.Tensor.view is not supported for conjugate view tensors when converting to a different dtype. |
DT111 other | prom.result_type | add_ | result type Float can't be cast to the desired output type Int | result=float32 out=int32
DT111 other | prom.cat | mean | mean.dtype_out(): input types can't be cast to the desired output type Int | out=int32
DT111 other | prom.cat | ldexp | ldexp can't be cast to the desired output type Int | out=int32
DT111 other | prom.output_type | add_ | output with type torch.LongTensor doesn't match the desired type torch.FloatTensor | out=int64 desired=float32
DT111 agree | prom.in_place | baddbmm_ | Bad in-place call: input tensor dtype float and output tensor dtype c10::Half should match | input=float32 output=float16
DT111 other | out.expected | kthvalue | output values must be of same type as input | out!
DT111 other | out.expected | addmm | Expected out tensor to have dtype float, but got c10::Half instead | out! expected=float32 found=float16
DT111 other | out.expected | where | Expected out type to be Float but got Half | out! expected=float32 found=float16
DT111 other | out.expected | diff | expected scalar_type Float but found Half | out! expected=float32 found=float16
DT111 other | out.expected | cholesky | cholesky: Expected result to be safely castable from Float dtype, but got result with dtype Int | out! result=float32 out=int32
DT111 other | out.expected | nan_to_num | nan_to_num: dtype of out: Half should be same as input: Float | out! found=float16 expected=float32
DT111 other | out.expected | amax | Expected the dtype for input and out to match, but got Float for input's dtype and Half for out's dtype. | out! expected=float32 found=float16
DT111 other | out.expected | dot | result dtype Half does not match input dtype Float | out! found=float16 expected=float32
DT111 other | out.expected | linspace.tensor_overload | dtype Float does not match dtype of out parameter (Half) | out! expected=float32 found=float16
DT111 other | out.expected | float_power | the output given to float_power has dtype Half but the operation's result requires dtype Double | out! found=float16 expected=float64
DT111 other | out.expected | fft.fft | fft expects a complex output tensor, but got Half | out! found=float16
DT111 other | out.expected | logsumexp | logsumexp(): Expected floating point type for result tensor, but got: Int | out! found=int32
DT111 other | out.expected | max.reduction_no_dim | Expected canCast( typeMetaToScalarType(self.dtype()), typeMetaToScalarType(out.dtype())) to be true, | out!
DT111 other | out.scalar | masked_select | masked_select(): self and result must have the same scalar type | out!
DT111 other | out.scalar | nonzero | nonzero: Expected out tensor to have scalar type Long but got scalar typeHalf | out!
DT111 other | out.scalar | multinomial | multinomial expects Long tensor out, got: Half | out! found=float16
DT111 other | out.scalar | all | all only supports bool tensor for result, got: Half | out! found=float16
DT111 other | out.scalar | signbit | signbit does not support non-boolean outputs. | out!
DT111 other | out.scalar | searchsorted | torch.searchsorted(): output tensor's dtype is wrong, it can only be Int(int32) or Long(int64) depending on whether out_int32 flag is True, but we got output tensor's dtype Half | out! found=float16
DT111 other | impl.quantile | quantile | quantile() out tensor must be same dtype as the input tensor | out!
# Comparisons.
DT122 agree | close.did_not_match | allclose | Half did not match Float | a=float16 b=float32
DT122 agree | close.assert |  | The values for attribute 'dtype' do not match: torch.float32 != torch.float16. | a=float32 b=float16
# No kernel, or none for this kind of dtype.
DT109 kernel | impl.not_implemented_for | abs | "abs_cpu" not implemented for 'Bool' | found=bool
DT109 kernel | impl.not_implemented_for | aminmax | aminmax not implemented for ComplexFloat | found=complex64
DT109 kernel | impl.cufft_half | fft | cuFFT only supports dimensions whose sizes are powers of two when computing in half precision, but got a signal size of[12] | found=float16
DT109 kernel | impl.unsupported_dtype | std | std_var_all: Unsupported dtype Float8_e4m3fn | found=float8_e4m3fn
DT109 kernel | impl.unsupported_dtype | isin | Unsupported input type encountered for isin(): ComplexFloat | found=complex64
DT109 kernel | impl.unsupported_dtype | stft | MKL FFT doesn't support tensors of type: Half | found=float16
DT109 kernel | impl.unsupported_dtype | linalg.eig | Unknown Complex ScalarType for Float8_e4m3fn | found=float8_e4m3fn
DT109 kernel | impl.low_precision_linalg | logdet | logdet: Low precision dtypes not supported. Got Half | found=float16
DT109 kernel | impl.low_precision_linalg | linalg.lstsq | This function doesn't handle types other than float and double |
DT109 kernel | impl.low_precision_linalg | linalg.pinv | linalg.pinv(Half{[5, 5]}): expected a tensor with 2 or more dimensions of float, | found=float16
DT109 kernel | impl.low_precision_linalg | linalg.vander | linalg.vander supports floating point, complex, and integer tensors, but got Half | found=float16
DT109 kernel | impl.low_precision_linalg | sparse.sampled_addmm | sparse_sampled_addmm: Expected self to be a floating-point or complex tensor, but got Half | found=float16
DT109 float | impl.linalg_float | linalg.lu_solve | torch.linalg.lu_solve: Expected a floating point or complex tensor as input. Got Int | found=int32
DT109 float | impl.mean | mean | mean(): could not infer output dtype. Input dtype must be either a floating point or complex dtype. Got: Int | found=int32
DT109 float | impl.mean | cov | cov(): expected aweights to have floating point dtype but got aweights with Int dtype | aweights! found=int32
DT109 float | impl.var | var_mean | var_mean only support floating point and complex dtypes |
DT109 float | impl.only_float | cdist | cdist only supports floating-point dtypes, X1 got: Int | found=int32
DT109 float | impl.only_float | dist | norm(): input dtype should be either floating point or complex. Got Int instead. | found=int32
DT109 float | impl.only_float | cauchy | Cauchy distribution is a continuous probability distribution. dtype must be a floating point but you specified int | found=int32
DT109 float | impl.only_float | cosine_similarity | expected common dtype to be floating point, yet common dtype is ComplexFloat | found=complex64
DT109 float | impl.only_float | stft | stft(torch.IntTensor[110], n_fft=10, hop_length=2, win_length=10, window=None, normalized=0, onesided=None, return_complex=1, align_to_window=None) : expected a tensor of floating point or complex values |
DT109 float | impl.only_float | finfo | torch.finfo() requires a floating point input type. Use torch.iinfo to handle 'torch.finfo' |
DT109 integer | impl.only_integer | masked.amax | torch.iinfo() requires an integer input type. Use torch.finfo to handle 'torch.iinfo' |
DT109 float | impl.addcdiv | _foreach_addcdiv | Integer division with addcdiv is no longer supported, and in |
DT109 kernel | impl.window | signal.windows.general_cosine | general_cosine expects float32 or float64 dtypes, got: torch.float16 | found=float16
DT109 kernel | impl.quantize | quantize_per_tensor | Quantize only works on Float Tensor, got Half | found=float16
DT109 kernel | impl.identity | masked.amax | identity of amax on torch.bool input | found=bool
DT109 other | impl.random | randint_like | check_random_bounds handles only integral, floating-point and boolean types |
DT109 kernel | impl.quantile | quantile | quantile() input tensor must be either float or double dtype |
DT109 kernel | impl.bool_ops | sub | Subtraction, the `-` operator, with a bool tensor is not supported. | found=bool
DT109 kernel | impl.bool_ops | positive | The `+` operator, on a bool tensor is not supported. | found=bool
DT109 kernel | impl.bool_ops | relu | Boolean inputs not supported for relu | found=bool
DT109 kernel | impl.bool_ops | topk | topk does not support bool dtypes on CPU | found=bool
DT109 kernel | impl.bool_ops | cov | cov(): bool dtype is not supported for input | found=bool
DT109 kernel | impl.bool_ops | trapezoid | trapezoid: received a bool input for `x` or `y`, but bool is not supported | found=bool
DT109 kernel | impl.bool_ops | mvlgamma.mvlgamma_p_1 | The input tensor may not be a boolean tensor. | found=bool
DT109 kernel | cplx.both_inputs | complex | Expected both inputs to be Half, Float or Double tensors but got BFloat16 and Float | found=bfloat16 other=float32
DT109 kernel | cplx.both_inputs | complex | Expected both inputs to be Half, Float or Double tensors but got Float and BFloat16 | other=float32 found=bfloat16
DT109 kernel | cplx.view_as_complex | view_as_complex | view_as_complex is only supported for half, float and double tensors, but got a tensor of scalar type: BFloat16 | found=bfloat16
DT109 complex | cplx.view_as_real | view_as_real | view_as_real is only supported for complex tensors |
DT109 kernel | cplx.no_kernel | fft.rfft | rfft expects a real input tensor, but got ComplexFloat | found=complex64
DT109 kernel | cplx.no_kernel | linalg.pinv | torch.linalg.pinv: rtol tensor of complex type is not supported. Got ComplexFloat | found=complex64
DT109 kernel | cplx.no_kernel | abs_ | In-place abs is not supported for complex tensors. |
DT109 kernel | cplx.no_kernel | normal | normal expects standard deviation to be non-complex |
# Libraries.
DT121 other | mm.int4 | _weight_int4pack_mm | Expected A.dtype() == at::kBFloat16 to be true, but got false.  (Could this error message be improved?) |
DT121 kernel | lib.bnb_blockwise |  | Blockwise quantization only supports 16/32-bit floats, but got torch.uint8 | found=uint8
DT121 agree | lib.triton_dot |  | Both operands must be same dtype. Got fp32 and bf16 | a=float32 b=bfloat16
DT121 agree | lib.triton_dot |  | First input (fp16) and second input (fp32) must have the same dtype! | a=float16 b=float32
DT121 agree | lib.nms | nms | dets should have the same type as scores |
DT121 other | rng.state | set_rng_state | RNG state must be a torch.ByteTensor | new_state! expected=uint8
DT106 agree | lib.check |  | Expected input.scalar_type() == weight.scalar_type() to be true, but got false. |
DT121 other | lib.check |  | Expected x.scalar_type() == at::ScalarType::Half to be true, but got false. |
""")
]

# Texts that do not name the operation take their code from it, in any of the spellings that a caller may have.
EXPECTED_FOUND = "expected scalar type Half but found Float"
BY_OP = [
    *[
        (EXPECTED_FOUND, op, "DT101")
        for op in (
            "linear",
            "aten::mm",
            "bmm.default",
            "aten.addmm.out",
            "einsum",
            "MmBackward0",
            "__matmul__",
            "matmul",
            "baddbmm",
            "torch.nn.functional.linear",
            "tensordot",
        )
    ],
    *[
        (EXPECTED_FOUND, op, "DT102")
        for op in (
            "conv2d",
            "Conv2d",
            "convolution_backward",
            "ConvolutionBackward0",
            "conv_transpose1d",
            "mkldnn_convolution",
            "aten.convolution.default",
            "ConvTranspose2d",
        )
    ],
    *[
        (EXPECTED_FOUND, op, "DT103")
        for op in (
            "scaled_dot_product_attention",
            "_scaled_dot_product_flash_attention_for_cpu",
            "multi_head_attention_forward",
            "flash_attn_func",
        )
    ],
    *[
        (EXPECTED_FOUND, op, "DT104")
        for op in (
            "layer_norm",
            "native_group_norm",
            "cudnn_batch_norm",
            "rms_norm",
            "LayerNorm",
            "NativeLayerNormBackward0",
            "instance_norm",
        )
    ],
    *[(EXPECTED_FOUND, op, "DT105") for op in ("lstm", "gru_cell", "_thnn_fused_lstm_cell", "rnn_tanh", "LSTM")],
    *[
        (EXPECTED_FOUND, op, "DT106")
        for op in (
            "",
            "where",
            "bilinear",
            "upsample_bilinear2d",
            "embedding",
            "weight_norm",
            "vector_norm",
            "normal_",
            "broadcast_tensors",
            "grid_sample",
            "backward",
            "comm",
        )
    ],
    *[(EXPECTED_FOUND, op, "DT107") for op in ("index_put_", "scatter_add", "masked_scatter", "__setitem__")],
    *[
        (EXPECTED_FOUND, op, "DT113")
        for op in ("huber_loss_backward", "cross_entropy", "MseLossBackward0", "kl_div", "NLLLoss")
    ],
    *[
        (EXPECTED_FOUND, op, "DT115")
        for op in ("_fused_adamw_", "_foreach_lerp_", "AdamW", "_single_tensor_adam", "sgd")
    ],
    *[(EXPECTED_FOUND, op, "DT116") for op in ("_amp_foreach_non_finite_check_and_unscale_",)],
    *[(EXPECTED_FOUND, op, "DT117") for op in ("all_reduce", "_allgather_base_", "reduce_scatter_tensor", "broadcast")],
    ("expected dtype c10::BFloat16 for `end` but got dtype float", "_foreach_lerp_", "DT115"),
    ("expected dtype c10::BFloat16 for `end` but got dtype float", "lerp", "DT106"),
    ("Found dtype Double but expected Float", "", "DT113"),
    ("Found dtype Double but expected Float", "huber_loss_backward", "DT113"),
    ("mat1 and mat2 must have the same dtype, but got Half and Float", "GRU", "DT105"),
    ("mat1 and mat2 must have the same dtype, but got Half and Float", "layer_norm", "DT101"),
    ("expected scalar type Long but found Float", "bmm", "DT101"),
    ("expected scalar type Long but found Float", "multi_margin_loss", "DT108"),
    ("expected scalar type long long but found float", "where", "DT106"),
    ("result type Float can't be cast to the desired output type Long", "binary_cross_entropy_with_logits", "DT113"),
    ("result type Float can't be cast to the desired output type Long", "add_", "DT111"),
]

# Warnings and look-alikes that the table knows and keeps out: (its row, the text).
LOOKALIKES = [
    (
        "sdpa.backend",
        "Expected query, key and value to all be of dtype: {Half, BFloat16}. Got Query dtype: float, Key dtype:",
    ),
    ("cplx.discard", "Casting complex values to real discards the imaginary part"),
    (
        "autocast.unsupported",
        "In CPU autocast, but the target dtype is not supported. Disabling autocast.\nCPU Autocast only supports",
    ),
    ("lib.bnb_matmul8", "MatMul8bitLt: inputs will be cast from torch.float32 to float16 during quantization"),
    (
        "lib.bnb_4bit_compute",
        "Input type into Linear4bit is torch.float16, but bnb_4bit_compute_dtype=torch.float32 (default). This",
    ),
    (
        "lib.hf_silent_cast",
        "The input hidden states seems to be silently casted in float32, this might be related to the fact you",
    ),
    (
        "lib.webui_nan",
        "A tensor with all NaNs was produced in Unet. This could be either because there's not enough precision",
    ),
    ("opt.no_inf_checks", "No inf checks were recorded for this optimizer."),
    (
        "look.device_all_same",
        "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
    ),
    ("look.no_grad_fn", "element 0 of tensors does not require grad and does not have a grad_fn"),
]

NOT_REFUSALS = r"""
RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x4 and 5x3)
RuntimeError: The size of tensor a (4) must match the size of tensor b (3) at non-singleton dimension 1
RuntimeError: Given groups=1, weight of size [1, 4, 3, 3], expected input[1, 3, 4, 4] to have 4 channels, but got 3 channels instead
RuntimeError: Given normalized_shape=[5], expected input with shape [*, 5], but got input of size[4, 4]
RuntimeError: shape '[4, 2]' is invalid for input of size 12
RuntimeError: 1D tensors expected, but got 2D and 1D tensors
RuntimeError: inconsistent tensor size, expected tensor [9] and src [3] to have the same number of elements, but got 9 and 3 elements respectively
RuntimeError: cov(): expected fweights to have one or fewer dimensions but got fweights with 2 dimensions
RuntimeError: cov(): expected aweights to have the same numel as there are observations in the input but got 1 != 5
IndexError: Dimension out of range (expected to be in range of [-3, 2], but got 10000)
IndexError: The shape of the mask [3] at index 0 does not match the shape of the indexed tensor [5, 5, 5] at index 2
RuntimeError: index 23 is out of bounds for dimension 1 with size 2
RuntimeError: Size does not match at dimension 0 expected index [2, 2] to be no larger than self [1, 1] apart from dimension 1
RuntimeError: linalg.pinv(Float{[5]}): expected a tensor with 2 or more dimensions of float, double, cfloat or cdouble types
RuntimeError: masked_fill_ only supports a 0-dimensional value tensor, but got tensor with 1 dimension(s).
RuntimeError: Expected tensor for argument #1 'input' to have the same dimension as tensor for 'result'; but 4 does not equal 3
RuntimeError: self.size(-1) must be divisible by 2 to view Float as ComplexFloat (different element sizes), but got 3
RuntimeError: 0D or 1D target tensor expected, multi-target not supported
RuntimeError: ignore_index is not supported for floating point target
ValueError: masked median expects no fully masked out rows if dtype is not floating point
RuntimeError: lambda must be in range [0, 3.40282e+38] for input dtype Float, but found -0.5
RuntimeError: quantile() q must be in the range [0, 1] but got 1e+43
RuntimeError: quantile() input tensor is too large
RuntimeError: linalg.vector_norm: Expected a non-complex scalar as the order of norm.
RuntimeError: cauchy_ expects sigma > 0.0, but found sigma=-1e+38
RuntimeError: add(sparse, dense) is not supported. Use add(dense, sparse) instead.
RuntimeError: narrow_copy: Expected dim < static_cast<int64_t>(self_sizes.size()) to be true, but got false.
RuntimeError: grad can be implicitly created only for scalar outputs
RuntimeError: Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed).
RuntimeError: a leaf Variable that requires grad is being used in an in-place operation.
RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation: [torch.cuda.HalfTensor [4, 4]], which is output 0 of AddBackward0, is at version 2; expected version 1 instead.
RuntimeError: Function MulBackward0 returned an invalid gradient at index 0 - got [4] but expected shape compatible with [5]
RuntimeError: Function AddBackward0 returned an invalid gradient at index 1 - expected type torch.cuda.FloatTensor but got torch.FloatTensor
RuntimeError: Input type (torch.cuda.HalfTensor) and weight type (torch.HalfTensor) should be the same
RuntimeError: Expected object of type torch.cuda.FloatTensor but found type torch.FloatTensor for argument #4 'mat1'
RuntimeError: Expected object of type torch.cuda.LongTensor but found type torch.LongTensor for argument #3 'index'
RuntimeError: Expected tensor for argument #1 'input' to have the same type as tensor for argument #2 'weight'; but type torch.cuda.FloatTensor does not equal torch.FloatTensor (while checking arguments for cudnn_convolution)
RuntimeError: expected type torch.cuda.FloatTensor but got torch.FloatTensor
RuntimeError: Expected CUDAFloatType, got CPUFloatType
RuntimeError: Tensor on device meta is not on the expected device cpu!
RuntimeError: torch.gradient expected each tensor to be on the same device, but got devices cpu and meta!
RuntimeError: `fused=True` requires all the params to be floating point Tensors of supported devices: ['cuda', 'xpu'] but torch.float32 and meta
TypeError: can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first.
TypeError: type torch.cuda.HalfTensor not available. Torch not compiled with CUDA enabled.
NotImplementedError: Could not run 'aten::bmm' with arguments from the 'QuantizedCPU' backend. dtype torch.quint8 is not supported
RuntimeError: CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasGemmEx(handle, opa, opb, m, n, k, &falpha, a, CUDA_R_16BF)`
RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB of float32
TypeError: linear(): argument 'input' must be Tensor, not int
TypeError: linear(): argument 'input' (position 1) must be Tensor, not int
TypeError: zeros(): argument 'dtype' must be torch.dtype, not str
TypeError: cauchy_(): argument 'sigma' (position 2) must be float, not complex
TypeError: expected Tensor as element 0 but got int
TypeError: expected Tensor as element 0 in argument 0, but got int
TypeError: conv2d() received an invalid combination of arguments - got (int, Tensor), but expected one of:\n * (Tensor input, Tensor weight)\n
RuntimeError: aten::native_dropout_backward() Expected a value of type 'float' for argument 'scale' but instead found type 'complex'.
TypeError: bias should be of type bool, got: int
TypeError: delta must be a float or int, got: <class 'complex'>
TypeError: '<' not supported between instances of 'complex' and 'float'
TypeError: unsupported operand type(s) for *: 'float' and 'Tensor'
TypeError: 'float' object cannot be interpreted as an integer
TypeError: 'torch.dtype' object is not callable
TypeError: new(): invalid data type 'str'
RuntimeError: Could not infer dtype of NoneType
RuntimeError: Invalid device string: 'float32'
AttributeError: 'int' object has no attribute 'dtype'
AttributeError: module 'torch' has no attribute 'float33'
TypeError: Adadelta.__init__() got an unexpected keyword argument 'fused'
TypeError: LlamaForCausalLM.__init__() got an unexpected keyword argument 'dtype'
TypeError: cannot assign 'torch.cuda.HalfTensor' as parameter 'weight' (torch.nn.Parameter or None expected)
TypeError: params argument given to the optimizer should be an iterable of Tensors or dicts, but got torch.FloatTensor
TypeError: Object of type float32 is not JSON serializable
UFuncTypeError: Cannot cast ufunc 'add' output from dtype('float64') to dtype('int64') with casting rule 'same_kind'
OverflowError: Python integer 300 out of bounds for uint8
ValueError: Overflow when unpacking long long
ValueError: cannot convert float NaN to integer
ValueError: could not convert string to float: 'torch.float16'
ValueError: fp16 mixed precision requires a GPU (not 'cpu').
ValueError: Long sequences are not supported
RuntimeError: Double backward is not supported for attention
ValueError: stack expects each tensor to be equal size, but got [4, 4] at entry 0 and [2, 4] at entry 1
AssertionError: The values for attribute 'shape' do not match: torch.Size([4, 4]) != torch.Size([2, 4]).
AssertionError: Tensor-likes are not close!\n\nMismatched elements: 16 / 16 (100.0%)\nGreatest absolute difference: 1.0 at index (0, 0) (up to 1e-05 allowed)
UserWarning: expected scalar type Half but found Float
RuntimeError:
""".strip().splitlines()

# No row knows these: (exception, message, code, wants, dtypes).
GENERIC = [
    (
        "RuntimeError",
        "requires_float64: expected torch.float64, got torch.float32",
        "DT121",
        "other",
        {"found": "float32"},
    ),
    ("AssertionError", "mask.dtype must be torch.bool, got torch.int64", "DT121", "other", {"found": "int64"}),
    ("ValueError", "query_descale must have dtype float32, got torch.float16", "DT121", "other", {"found": "float16"}),
    (
        "ValueError",
        "acc_dtype must be one of {None, torch.float16, torch.float32}, got torch.int32. Pass acc_dtype=None to let the op pick.",
        "DT121",
        "other",
        {"found": "int32"},
    ),
    (
        "RuntimeError",
        "Expected theta to have floating point type, but got torch.int64",
        "DT121",
        "other",
        {"found": "int64"},
    ),
    (
        "RuntimeError",
        "inputs must have the same dtype, got torch.float16 and torch.float32",
        "DT106",
        "agree",
        {"a": "float16", "b": "float32"},
    ),
    (
        "AssertionError",
        "Input and weight have different dtypes: torch.float32 vs torch.bfloat16",
        "DT106",
        "agree",
        {"a": "float32", "b": "bfloat16"},
    ),
    (
        "ValueError",
        "dtype mismatch between query (torch.float16) and key (torch.float32)",
        "DT106",
        "agree",
        {"a": "float16", "b": "float32"},
    ),
    (
        "ValueError",
        "dtype mismatch: expected torch.float16 but got torch.float32",
        "DT106",
        "agree",
        {"a": "float16", "b": "float32"},
    ),
    ("RuntimeError", "torch.float64 not supported for floor_divide", "DT109", "kernel", {"found": "float64"}),
    ("TypeError", "custom_op: unsupported dtype torch.float64", "DT109", "kernel", {"found": "float64"}),
    ("AssertionError", "Only support bfloat16 and float16, got torch.float32", "DT109", "kernel", {"found": "float32"}),
    (
        "RuntimeError",
        "_cslt_sparse_mm only supports fp16, bf16, int8, and fp8e4m3, got torch.float32",
        "DT109",
        "kernel",
        {"found": "float32"},
    ),
    ("ValueError", "Type fp16 is not supported.", "DT109", "kernel", {"found": "float16"}),
]

CHECKPOINT = """torch.utils.checkpoint: Recomputed values for the following tensors have different metadata than during the forward pass.
tensor at position 0:
saved metadata: {'shape': torch.Size([4, 4]), 'dtype': torch.float32, 'device': device(type='cpu')}
recomputed metadata: {'shape': torch.Size([2, 4]), 'dtype': torch.float32, 'device': device(type='cpu')}
"""
WORKER = """Caught RuntimeError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "dataset.py", line 3, in __getitem__
    return x.to(torch.float16) @ y  # expects dtype torch.float16, got torch.float32
"""

SPELLINGS = {
    "float32": "float, Float, torch.float32, torch.float, torch.FloatTensor, torch.cuda.FloatTensor, CPUFloatType, CUDAFloatType, "
    "MPSFloatType, c10::Float, FloatTensor, fp32, float32, torch.sparse.FloatTensor",
    "float16": "c10::Half, struct c10::Half, at::Half, Half, torch.float16, torch.half, torch.HalfTensor, torch.cuda.HalfTensor, "
    "CPUHalfType, CUDAHalfType, MPSHalfType, HalfTensor, fp16, SparseCUDAHalfType, at::ScalarType::Half",
    "bfloat16": "c10::BFloat16, struct c10::BFloat16, at::BFloat16, BFloat16, torch.bfloat16, torch.BFloat16Tensor, "
    "torch.cuda.BFloat16Tensor, CPUBFloat16Type, CUDABFloat16Type, MPSBFloat16Type",
    "float64": "double, Double, torch.float64, torch.double, torch.DoubleTensor, torch.cuda.DoubleTensor, CPUDoubleType, DoubleTensor",
    "int64": "long, long int, __int64, int64_t, long long, Long, torch.int64, torch.long, torch.LongTensor, "
    "torch.cuda.LongTensor, CPULongType, LongTensor",
    "int32": "int, Int, torch.int32, torch.int, torch.IntTensor, torch.cuda.IntTensor, int32_t, IntTensor",
    "int16": "short, Short, torch.int16, torch.ShortTensor, int16_t",
    "int8": "signed char, Char, torch.int8, torch.CharTensor, int8_t",
    "uint8": "unsigned char, Byte, torch.uint8, torch.ByteTensor, uint8_t",
    "bool": "bool, Bool, torch.bool, torch.BoolTensor",
    "complex64": "c10::complex<float>, ComplexFloat, torch.complex64, CUDAComplexFloatType",
    "complex128": "c10::complex<double>, ComplexDouble, torch.complex128",
    "complex32": "c10::complex<c10::Half>, ComplexHalf, torch.complex32",
    "float8_e4m3fn": "Float8_e4m3fn, c10::Float8_e4m3fn, torch.float8_e4m3fn, CPUFloat8_e4m3fnType",
    "float8_e5m2": "Float8_e5m2, c10::Float8_e5m2, torch.float8_e5m2",
    "uint16": "UInt16, torch.uint16",
    "qint8": "QuantizedCPUQInt8Type",
    "float8_e4m3fnuz": "torch.float8_e4m3fnuz",
    "float4_e2m1fn_x2": "Float4_e2m1fn_x2",
}

# The wordings that were catalogued before the table was written.
CATALOGUE = set(
    (
        "mm.mat1_mat2 mm.self_mat2 mm.m1_m2 mm.expected_mat1_mat2 mm.addmv mm.dot mm.baddbmm mm.bilinear mm.scaled_mm mm.solve "
        "mm.sampled_addmm mm.int4 scalar.expected_found scalar.expected_object_arg scalar.expected_object_second "
        "scalar.expected_object_type scalar.must_match_arg scalar.index_types conv.input_bias conv.input_weight norm.cpu_param_float "
        "norm.cpu_all_same norm.prelu sdpa.qkv sdpa.mask sdpa.flash_cpu sdpa.backend xformers.qkv flash.only_half prom.result_type "
        "prom.found_dtype prom.expected_got_dtype prom.output_type prom.float8 prom.float4 prom.lerp prom.prioritize prom.cat "
        "prom.meshgrid idx.index_put idx.scatter_src idx.index_dtype idx.index_add idx.index_copy idx.put_take idx.masked_scatter "
        "idx.mask_bool idx.masked_select idx.where_cond idx.tensors_as_indices idx.only_integer idx.take_along idx.one_hot "
        "idx.tensor_split val.overflow loss.target_long_or_byte loss.nll_cuda_int loss.prob_target loss.kl loss.bce_autocast "
        "impl.not_implemented_for impl.unsupported_dtype impl.low_precision_linalg impl.linalg_float impl.mean impl.var "
        "impl.only_float impl.quantile impl.bool_ops impl.invert impl.onednn_rnn impl.mps64 impl.got_unsupported_scalar "
        "impl.from_numpy cplx.both_inputs cplx.view_as_complex cplx.view_as_real cplx.discard grad.assign grad.requires_grad_int "
        "grad.hook_type grad.data_set grad.implicit_complex grad.ckpt_metadata opt.unscale_fp16 opt.no_inf_checks opt.same_index "
        "opt.fused_supported rnn.new rnn.native out.expected out.scalar dist.fsdp1_uniform dist.fsdp1_uniform_old dist.fsdp1_int "
        "dist.fsdp2_uniform dist.fsdp2_grad dist.c10d_mixed dist.output_same_type dist.bucket dist.expected_got mod.to_int "
        "mod.default_dtype autocast.unsupported autocast.no_bf16 close.did_not_match close.assert lib.bnb_matmul8 lib.bnb_4bit_compute "
        "lib.hf_silent_cast lib.deepspeed_autocast lib.webui_nan mod.view_dtype look.device_all_same look.no_grad_fn"
    ).split()
)


def name(case):
    return case if isinstance(case, str) and len(case) < 60 else None


@pytest.mark.parametrize("expected, op, message", REFUSALS, ids=name)
def test_a_known_wording_is_recognised(expected, op, message):
    assert recognise(message, op=op) == expected


@pytest.mark.parametrize("message, op, code", BY_OP)
def test_the_operation_refines_the_code(message, op, code):
    assert recognise(message, op=op).code == code


@pytest.mark.parametrize("line", [f"RuntimeError: {message}" for _, message in LOOKALIKES] + NOT_REFUSALS)
def test_what_only_resembles_a_refusal_is_none(line):
    exception, message = line.split(": ", 1) if ": " in line else (line.rstrip(":"), "")
    assert recognise(message.replace("\\n", "\n"), exception) is None


@pytest.mark.parametrize("exception, message, code, wants, dtypes", GENERIC)
def test_the_fallback(exception, message, code, wants, dtypes):
    assert recognise(message, exception) == Refusal("generic", code, wants, dtypes, None)


def test_every_row_has_a_sample_that_it_recognises(monkeypatch):
    """Guards the order of the table: a row that an earlier one shadows would never match."""
    used, compile_row = [], refusals._regex
    monkeypatch.setattr(refusals, "_regex", lambda wording: used.append(wording) or compile_row(wording))
    answered = set()
    for op, message in [(op, m) for _, op, m in REFUSALS] + [("", m) for _, m in LOOKALIKES]:
        recognise.__wrapped__(message, "RuntimeError", op)
        answered.add(used[-1])
    assert {row.wording for row, _ in refusals._ROWS} - answered == set()


def test_every_pattern_of_the_catalogue_is_accounted_for():
    recognised = {expected.pattern for expected, _, _ in REFUSALS}
    kept_out = {pattern for pattern, _ in LOOKALIKES}
    assert not recognised & kept_out
    assert len(CATALOGUE) == 115 and CATALOGUE <= recognised | kept_out


def test_every_code_has_a_title_and_a_sample():
    refused = [code for code in TITLES if code < "DT2"]
    assert refused == [f"DT1{n:02}" for n in range(1, 23)]
    assert {expected.code for expected, _, _ in REFUSALS} | {code for _, _, code in BY_OP} == set(refused)
    for title in (TITLES[code] for code in refused):
        assert title[0].islower() and not title.endswith(".")
        assert not any(word in title.split() for word in ("cast", "should", "must", "use", "expected"))


@pytest.mark.parametrize("dtype, spellings", SPELLINGS.items())
def test_spellings(dtype, spellings):
    assert {spelling: canonical(spelling) for spelling in spellings.split(", ")} == dict.fromkeys(
        spellings.split(", "), dtype
    )


@pytest.mark.parametrize(
    "text",
    ["", "torch", "dtype", "Tensor", "Type", "NoneType", "ScalarType", "torch.Size", "cuda", "object", "Half and"],
)
def test_what_is_no_dtype(text):
    assert canonical(text) is None


def test_recomputed_metadata_that_differs_in_shape_alone_is_no_dtype_refusal():
    assert recognise(CHECKPOINT, "CheckpointError") is None
    second = CHECKPOINT.split("\n", 1)[1].replace(
        "recomputed metadata: {'shape': torch.Size([2, 4]), 'dtype': torch.float32",
        "recomputed metadata: {'shape': torch.Size([4, 4]), 'dtype': torch.float16",
    )
    assert recognise(CHECKPOINT + second, "CheckpointError").dtypes == {"saved": "float32", "recomputed": "float16"}


def test_a_workers_source_lines_are_not_taken_for_its_message():
    assert recognise(WORKER + "RuntimeError: The size of tensor a (4) must match the size of tensor b (3)") is None
    found = recognise(WORKER + "RuntimeError: expected m1 and m2 to have the same dtype, but got: c10::Half != float\n")
    assert (found.code, found.dtypes) == ("DT101", {"m1": "float16", "m2": "float32"})


def test_exceptions_that_never_refuse_a_dtype():
    for exception in ("AttributeError", "KeyError", "UserWarning", "ImportError", "OutOfMemoryError"):
        assert recognise(EXPECTED_FOUND, exception) is None


def test_a_program_that_raises_many_exceptions_is_not_slowed_down():
    """Thousands of distinct texts, and very long ones, as compilers' errors are."""
    start = time.process_time()
    for n in range(2_000):
        recognise(f"mat1 and mat2 shapes cannot be multiplied ({n}x4 and 5x3)")
    recognise("x" * 5_000_000)
    recognise("torch.float16 is expected but got torch.int32 " * 10_000)
    assert time.process_time() - start < 20


def test_needs_no_torch():
    code = "import sys, dtypetrace.tables.refusals; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(refusals.__file__).parents[2])


LIVE = {
    "DT101": lambda t, f: f.linear(t.ones(2, 3), t.ones(4, 3).half()),
    "DT102": lambda t, f: f.conv2d(t.ones(1, 1, 4, 4), t.ones(1, 1, 3, 3).half(), t.ones(1).half()),
    "DT103": lambda t, f: f.scaled_dot_product_attention(t.ones(1, 2, 4), t.ones(1, 2, 4).half(), t.ones(1, 2, 4)),
    "DT104": lambda t, f: f.layer_norm(t.ones(2, 4).double(), (4,), t.ones(4)),
    "DT105": lambda t, f: t.nn.LSTM(4, 4)(t.ones(1, 1, 4).half()),
    "DT106": lambda t, f: t.lerp(t.ones(2), t.ones(2).half(), 0.5),
    "DT107": lambda t, f: t.zeros(3).half().index_put_((t.tensor([0]),), t.ones(1)),
    "DT108": lambda t, f: f.cross_entropy(t.ones(2, 3), t.tensor([0, 1], dtype=t.int32)),
    "DT109": lambda t, f: t.linalg.svd(t.ones(2, 2).half()),
    "DT110": lambda t, f: t.ones(2).half().masked_fill(t.ones(2).bool(), -1e9),
    "DT111": lambda t, f: t.ones(2, dtype=t.int64).mul_(t.rand(2)),
    "DT112": lambda t, f: t.ones(2).to(t.float8_e4m3fn) + t.ones(2),
    "DT113": lambda t, f: f.huber_loss(t.ones(2, requires_grad=True), t.ones(2).double()).backward(),
    "DT114": lambda t, f: setattr(t.ones(2, requires_grad=True), "grad", t.ones(2).half()),
    "DT119": lambda t, f: t.nn.Parameter(t.ones(2, dtype=t.int64)),
    "DT120": lambda t, f: t.ones(2).bfloat16().numpy(),
    "DT122": lambda t, f: t.allclose(t.ones(2), t.ones(2).half()),
}


@pytest.mark.parametrize("code", LIVE)
def test_what_the_installed_torch_says(code):
    torch = pytest.importorskip("torch")
    with pytest.raises(Exception) as caught:
        LIVE[code](torch, torch.nn.functional)
    found = recognise(str(caught.value), type(caught.value).__name__)
    assert found is not None and found.code == code and found.pattern != "generic"
