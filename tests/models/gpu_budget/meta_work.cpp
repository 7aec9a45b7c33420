#include "models/gpu_budget/meta_work.h"

#include <initializer_list>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "nn/bfloat16.h"
#include "nn/cuda/operations.h"
#include "profiler/operators/call_cost.h"

namespace sluice::meta {
namespace {

thread_local Work work;
thread_local std::vector<bool> open_calls;  // whether a call within each did work
thread_local int open_lists = 0;            // operators on lists of tensors, which are one kernel on GPUs

// Of tensors on "meta": others are numbers that the host works on.
double bytes_of(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_meta() ? static_cast<double>(tensor.nbytes()) : 0.0;
}

double bytes_of(const c10::IValue& value) {
  if (value.isTensor()) return bytes_of(value.toTensor());
  double bytes = 0;
  if (value.isTensorList())
    for (const at::Tensor& tensor : value.toTensorVector()) bytes += bytes_of(tensor);
  return bytes;
}

void add(const std::string& name, double bytes) {
  ++work.launches;
  work.bytes += bytes;
  ++work.by_name[name];
}

bool is_foreach(const at::RecordFunction& call) { return std::string_view(call.name()).starts_with("aten::_foreach_"); }

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& call) {
  open_calls.push_back(false);
  if (is_foreach(call)) ++open_lists;
  return nullptr;
}

double bytes_written_by(const at::RecordFunction& call) {
  double bytes = 0;
  for (const c10::IValue& output : call.outputs()) bytes += bytes_of(output);
  return is_foreach(call) && call.outputs().empty() ? bytes_of(call.inputs()[0]) : bytes;
}

// Operators that run others are counted by those.
void end(const at::RecordFunction& call, at::ObserverContext*) {
  const bool ran_others = open_calls.back() && !is_foreach(call);
  open_calls.pop_back();
  if (is_foreach(call)) --open_lists;
  const bool is_ours = std::string_view(call.name()).starts_with("sluice::");
  bool works = false;
  if (!ran_others && open_lists == 0 && !is_ours) {
    const operators::OperatorTraits traits = operators::traits_of(call);
    const double bytes = traits.touches_nothing ? 0 : bytes_written_by(call);
    works = bytes > 0;
    if (works) add(call.name(), bytes);
    if (traits.formula != nullptr) work.product_bytes += bytes;
  }
  if (!open_calls.empty()) open_calls.back() = open_calls.back() || works || ran_others;
}

// What one of this project's operations does, or of LibTorch's that has another form on "meta".
double did(const char* name, int launches, std::initializer_list<at::Tensor> outputs) {
  double bytes = 0;
  for (const at::Tensor& output : outputs) bytes += bytes_of(output);
  for (int i = 0; i < launches; ++i) add(name, i == 0 ? bytes : 0);
  if (!open_calls.empty()) open_calls.back() = true;
  return bytes;
}

void did_product(const char* name, int launches, std::initializer_list<at::Tensor> outputs) {
  work.product_bytes += did(name, launches, outputs);
}

}  // namespace

WorkCount::WorkCount() {
  work = {};
  open_calls.clear();
  handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&begin, &end)
                                           .needsInputs(true)
                                           .needsOutputs(true)
                                           .scopes({at::RecordScope::FUNCTION}));
}

WorkCount::~WorkCount() { at::removeCallback(handle_); }

Work WorkCount::take() { return std::exchange(work, {}); }

}  // namespace sluice::meta

// In place of cuda/operations.cpp.
namespace sluice::nn::gpu {

using meta::did;

bool has_kernels() { return true; }
bool run_on_device_of(const at::Tensor& x) { return x.is_meta(); }
bool suits(const at::Tensor& x) { return run_on_device_of(x) && (x.scalar_type() == at::kFloat || is_bf16(x)); }

at::Tensor dropout(const at::Tensor& input, const at::Tensor&, const MaskNumbers&) {
  at::Tensor y = at::empty_like(input);
  did("dropout", 1, {y});
  return y;
}

at::Tensor dropout_factors(at::IntArrayRef sizes, const at::Tensor& sample_ids, const MaskNumbers&) {
  at::Tensor factors = at::empty(sizes, sample_ids.options().dtype(at::kFloat));
  did("dropout", 1, {factors});
  return factors;
}

at::Tensor bias_gelu(const at::Tensor& input, const at::Tensor&, GeluForm) {
  at::Tensor y = at::empty_like(input);
  did("bias_gelu", 1, {y});
  return y;
}

BiasGeluGradients bias_gelu_backward(const at::Tensor&, const at::Tensor& input, const at::Tensor& bias, GeluForm,
                                     bool wants_bias) {
  BiasGeluGradients result{.x = at::empty_like(input), .bias = {}};
  if (wants_bias) result.bias = at::empty_like(bias);
  did("bias_gelu_backward", wants_bias ? 2 : 1, {result.x, result.bias});
  return result;
}

LayerNormResult layer_norm(const at::Tensor& input, const at::Tensor&, const at::Tensor&, double, at::ScalarType type) {
  const at::Tensor of_rows = at::empty({input.numel() / input.size(-1)}, input.options().dtype(at::kFloat));
  LayerNormResult result{.y = at::empty_like(input, input.options().dtype(type)),
                         .mean = of_rows,
                         .inverse_deviation = at::empty_like(of_rows)};
  did("layer_norm", 1, {result.y, result.mean, result.inverse_deviation});
  return result;
}

LayerNormGradients layer_norm_backward(const at::Tensor&, const at::Tensor& input, const at::Tensor& weight,
                                       const at::Tensor&, const at::Tensor&, LayerNormWanted wanted) {
  LayerNormGradients result;
  if (wanted.x) result.x = at::empty_like(input);
  if (wanted.weight_and_bias) {
    result.weight = at::empty_like(weight);
    result.bias = at::empty_like(weight);
  }
  did("layer_norm_backward", (wanted.x ? 1 : 0) + (wanted.weight_and_bias ? 3 : 0),
      {result.x, result.weight, result.bias});
  return result;
}

RowLosses cross_entropy(const at::Tensor& logits, const at::Tensor&, double) {
  const at::Tensor losses = at::empty({logits.size(0)}, logits.options().dtype(at::kFloat));
  RowLosses result{.losses = losses, .log_sums = at::empty_like(losses)};
  did("cross_entropy", 1, {result.losses, result.log_sums});
  return result;
}

at::Tensor cross_entropy_backward(const at::Tensor& logits, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                  double) {
  at::Tensor grad = at::empty_like(logits);
  did("cross_entropy_backward", 1, {grad});
  return grad;
}

at::Tensor count_hits(const at::Tensor&, const at::Tensor& targets) {
  at::Tensor hits = at::zeros({2}, targets.options());
  did("count_hits", 1, {hits});
  return hits;
}

void finish_batch_norm(at::Tensor& y, const at::Tensor&, const at::Tensor&, bool) { did("finish_batch_norm", 1, {y}); }

}  // namespace sluice::nn::gpu

// LibTorch's own operators that have no shapes on "meta" in C++.
namespace {

at::Tensor convolution(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>&,
                       c10::SymIntArrayRef stride, c10::SymIntArrayRef padding, c10::SymIntArrayRef, bool,
                       c10::SymIntArrayRef, c10::SymInt) {
  std::vector<std::int64_t> sizes{x.size(0), weight.size(0)};
  for (std::size_t i = 0; i < 2; ++i) {
    const auto dim = static_cast<std::int64_t>(i) + 2;
    sizes.push_back((x.size(dim) + 2 * padding[i].expect_int() - weight.size(dim)) / stride[i].expect_int() + 1);
  }
  return at::empty(sizes, x.options().memory_format(x.suggest_memory_format()));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(const at::Tensor&, const at::Tensor& x,
                                                                    const at::Tensor& weight, c10::SymIntArrayRef,
                                                                    c10::SymIntArrayRef, c10::SymIntArrayRef, bool,
                                                                    c10::SymIntArrayRef, c10::SymInt,
                                                                    std::array<bool, 3> wanted) {
  return {wanted[0] ? at::empty_like(x) : at::Tensor(), wanted[1] ? at::empty_like(weight) : at::Tensor(),
          wanted[2] ? at::empty({weight.size(0)}, weight.options()) : at::Tensor()};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> batch_norm(const at::Tensor& x, const std::optional<at::Tensor>& weight,
                                                          const std::optional<at::Tensor>&,
                                                          const std::optional<at::Tensor>&,
                                                          const std::optional<at::Tensor>&, bool, double, double) {
  return {at::empty_like(x), at::empty_like(*weight), at::empty_like(*weight)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> batch_norm_backward(
    const at::Tensor&, const at::Tensor& x, const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>&,
    const std::optional<at::Tensor>&, const std::optional<at::Tensor>&, const std::optional<at::Tensor>&, bool, double,
    std::array<bool, 3>) {
  return {at::empty_like(x), at::empty_like(*weight), at::empty_like(*weight)};
}

at::Tensor embedding_backward(const at::Tensor& grad, const at::Tensor&, c10::SymInt rows, c10::SymInt, bool) {
  return at::empty({rows.expect_int(), grad.size(-1)}, grad.options());
}

at::Tensor index_select(const at::Tensor& table, std::int64_t dim, const at::Tensor& index) {
  std::vector<std::int64_t> sizes = table.sizes().vec();
  sizes[dim] = index.numel();
  return at::empty(sizes, table.options());
}

// By flash attention, whose backward has three kernels.
struct Attention : torch::autograd::Function<Attention> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& query, const at::Tensor& key,
                            const at::Tensor& value) {
    ctx->save_for_backward({query, key, value});
    at::Tensor out = at::empty_like(query);
    sluice::meta::did_product("attention", 1, {out, query.select(-1, 0)});
    return out;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list&) {
    torch::autograd::variable_list grads;
    for (const at::Tensor& tensor : ctx->get_saved_variables()) grads.push_back(at::empty_like(tensor));
    sluice::meta::did_product("attention_backward", 3, {grads[0], grads[1], grads[2]});
    return grads;
  }
};

at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const std::optional<at::Tensor>&, double, bool, std::optional<double>, bool) {
  return Attention::apply(query, key, value);
}

at::Scalar read_number(const at::Tensor&) {
  ++sluice::meta::work.waits;
  return 1.0;
}

void note_update(at::TensorList values, std::size_t states) {
  double bytes = 0;
  for (const at::Tensor& tensor : values) bytes += static_cast<double>(tensor.nbytes());
  sluice::meta::add("fused update", bytes * static_cast<double>(1 + states));
}

void adamw(at::TensorList values, at::TensorList, at::TensorList, at::TensorList, at::TensorList, at::TensorList,
           double, double, double, double, double, bool, bool, const std::optional<at::Tensor>&,
           const std::optional<at::Tensor>&) {
  note_update(values, 2);
}

void sgd(at::TensorList values, at::TensorList, at::TensorList, double, double, double, double, bool, bool, bool,
         const std::optional<at::Tensor>&, const std::optional<at::Tensor>&) {
  note_update(values, 1);
}

TORCH_LIBRARY_IMPL(aten, Meta, m) {
  m.impl("convolution_overrideable", convolution);
  m.impl("convolution_backward_overrideable", convolution_backward);
  m.impl("native_batch_norm", batch_norm);
  m.impl("native_batch_norm_backward", batch_norm_backward);
  m.impl("embedding_dense_backward", embedding_backward);
  m.impl("index_select", index_select);
  m.impl("_local_scalar_dense", read_number);
  m.impl("_fused_adamw_", adamw);
  m.impl("_fused_sgd_", sgd);
}

TORCH_LIBRARY_IMPL(aten, AutogradMeta, m) { m.impl("scaled_dot_product_attention", attention); }

}  // namespace
