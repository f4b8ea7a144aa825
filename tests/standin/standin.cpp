// A device that is not the CPU, made of the CPU's memory and kernels, for tests where no accelerator is at hand.
//
// To torch it is one: tensors of its own device type that no CPU kernel takes, two devices with an engine thread each, copies
// between them and to the CPU, autocast with torch's lists for accelerators. What it cannot show: other kernels, other texts
// of refusals, streams that run beside the program. Reads that a real device would have to wait for are counted.

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/autocast_mode.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/alloc_cpu.h>
#include <torch/library.h>

#include <atomic>

namespace {

constexpr c10::DeviceType KIND = c10::DeviceType::PrivateUse1;
constexpr c10::DeviceIndex COUNT = 2;

thread_local c10::DeviceIndex current = 0;
thread_local bool falling_back = false;  // torch's fallback copies operands: a real kernel would not
std::atomic<int64_t> waits{0};

struct Falling {
  bool before = falling_back;
  Falling() { falling_back = true; }
  ~Falling() { falling_back = before; }
};

void waited() {
  if (!falling_back) ++waits;
}

struct Memory final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* at = bytes ? c10::alloc_cpu(bytes) : nullptr;
    return {at, at, &c10::free_cpu, c10::Device(KIND, current)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &c10::free_cpu; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};

Memory memory;
REGISTER_ALLOCATOR(KIND, &memory);

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return KIND; }
  c10::Device exchangeDevice(c10::Device device) const override {
    c10::Device before(KIND, current);
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return {KIND, current}; }
  void setDevice(c10::Device device) const override { uncheckedSetDevice(device); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index()) current = device.index();
  }
  c10::Stream getStream(c10::Device device) const override { return c10::Stream(c10::Stream::DEFAULT, device); }
  c10::Stream getDefaultStream(c10::Device device) const override { return c10::Stream(c10::Stream::DEFAULT, device); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override { return COUNT; }
  void record(void** event, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {
    *event = nullptr;
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override { waited(); }
  void synchronizeDevice(const c10::DeviceIndex) const override { waited(); }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return COUNT; }
  c10::DeviceIndex getCurrentDevice() const override { return current; }
  void setCurrentDevice(c10::DeviceIndex index) const override { current = index; }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    auto* held = storage.unsafeGetStorageImpl();
    auto grown = memory.allocate(bytes);
    if (held->nbytes()) std::memcpy(grown.get(), held->data(), std::min(bytes, held->nbytes()));
    held->set_data_ptr_noswap(std::move(grown));
    held->set_nbytes(bytes);
  }
};

const bool hooked = [] {
  static Hooks hooks;
  at::RegisterPrivateUse1HooksInterface(&hooks);
  return true;
}();

// ---------------------------------------------------------------- kernels

struct On {  // makes a device the current one for a while
  c10::DeviceIndex before = current;
  explicit On(std::optional<c10::Device> device) {
    if (device && device->has_index()) current = device->index();
  }
  ~On() { current = before; }
};

at::Tensor empty(c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  On on(device);
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), &memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
  On on(device);
  return at::detail::empty_strided_generic(C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), &memory,
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(dtype));
}

// The same memory as a tensor of the CPU.
at::Tensor on_cpu(const at::Tensor& tensor) {
  if (!tensor.is_privateuseone()) return tensor;
  c10::Storage storage(c10::Storage::use_byte_size_t(), tensor.storage().nbytes(),
                       c10::DataPtr(tensor.storage().mutable_data(), c10::Device(c10::kCPU)), nullptr, false);
  auto seen = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                       tensor.dtype());
  seen.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides());
  seen.unsafeGetTensorImpl()->set_storage_offset(tensor.storage_offset());
  if (tensor.is_conj()) seen._set_conj(true);
  if (tensor.is_neg()) seen._set_neg(true);
  return seen;
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  if (from.device() != to.device() && (to.is_cpu() || !non_blocking)) waited();
  on_cpu(to).copy_(on_cpu(from));
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

at::Scalar scalar_of(const at::Tensor& tensor) {
  waited();
  return on_cpu(tensor).item();
}

at::Tensor as_strided(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<c10::SymInt> offset) {
  return at::native::as_strided_tensorimpl(self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride),
                                           offset ? std::make_optional(offset->expect_int()) : std::nullopt);
}

at::Tensor view(const at::Tensor& self, c10::SymIntArrayRef size) { return at::native::view(self, C10_AS_INTARRAYREF_SLOW(size)); }

at::Tensor reshaped(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  return as_strided(self, size, stride, self.storage_offset());
}

const at::Tensor& resize(const at::Tensor& self, c10::SymIntArrayRef size, std::optional<at::MemoryFormat>) {
  auto sizes = C10_AS_INTARRAYREF_SLOW(size);
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(sizes);
  size_t bytes = (impl->storage_offset() + impl->numel()) * self.element_size();
  if (bytes > self.storage().nbytes()) at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(self.storage(), bytes);
  return self;
}

// Where torch asks a device for a kernel of its own and its fallback does not reach.
at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias, c10::SymIntArrayRef stride,
                       c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation, bool transposed, c10::SymIntArrayRef output_padding,
                       c10::SymInt groups) {
  Falling falling;
  auto own = bias && bias->defined() ? std::make_optional(on_cpu(*bias)) : std::nullopt;
  return at::convolution_symint(on_cpu(input), on_cpu(weight), own, stride, padding, dilation, transposed, output_padding, groups)
      .to(input.device());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight, c10::SymIntArrayRef stride, c10::SymIntArrayRef padding,
    c10::SymIntArrayRef dilation, bool transposed, c10::SymIntArrayRef output_padding, c10::SymInt groups, std::array<bool, 3> mask) {
  Falling falling;
  std::optional<c10::SymIntArrayRef> bias_sizes;
  std::vector<c10::SymInt> sizes{gradient.sym_size(1)};
  if (mask[2]) bias_sizes = sizes;
  auto [a, b, c] = at::convolution_backward_symint(on_cpu(gradient), on_cpu(input), on_cpu(weight), bias_sizes, stride, padding, dilation,
                                                   transposed, output_padding, groups, mask);
  auto back = [&](at::Tensor t) { return t.defined() ? t.to(input.device()) : t; };
  return {back(a), back(b), back(c)};
}

int64_t plain_attention(const at::Tensor&, const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, double, bool,
                        std::optional<double>, bool) {
  return 0;
}

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  Falling falling;
  at::native::cpu_fallback(op, stack);
}

int64_t waits_so_far() { return waits; }


}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", scalar_of);
  m.impl("as_strided", as_strided);
  m.impl("view", view);
  m.impl("_reshape_alias", reshaped);
  m.impl("resize_", resize);
  m.impl("convolution_overrideable", convolution);
  m.impl("convolution_backward_overrideable", convolution_backward);
  m.impl("_fused_sdp_choice", plain_attention);
  m.impl("set_.source_Storage", [](at::Tensor& self, at::Storage source) -> at::Tensor& {
    int64_t size = source.nbytes() / self.element_size();
    return at::native::set_storage_cpu_(self, source, 0, {size}, {});
  });
  m.impl("set_.source_Storage_storage_offset",
         [](at::Tensor& self, at::Storage source, c10::SymInt offset, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) -> at::Tensor& {
           return at::native::set_storage_cpu_(self, source, offset.expect_int(), C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride));
         });
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

#define LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define WIDE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define WIDE_RESULT(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define WIDEST(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  AT_FORALL_LOWER_PRECISION_FP(LOWER)
  AT_FORALL_FP32(WIDE)
  AT_FORALL_FP32_SET_OPT_DTYPE(WIDE_RESULT)
  AT_FORALL_PROMOTE(WIDEST)
}

TORCH_LIBRARY(standin, m) { m.def("waits() -> int", waits_so_far); }
