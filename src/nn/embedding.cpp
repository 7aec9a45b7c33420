#include "nn/embedding.h"

#include <torch/csrc/autograd/custom_function.h>

#include "nn/weight_queue.h"

namespace sluice::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor table_gradient(const at::Tensor& grad, const at::Tensor& tokens, std::int64_t rows) {
  constexpr std::int64_t kNoPadding = -1;
  return at::embedding_dense_backward(grad, tokens, rows, kNoPadding, /*scale_grad_by_freq=*/false);
}

class EmbeddingFunction : public torch::autograd::Function<EmbeddingFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& tokens, const at::Tensor& table,
                            WeightGradQueue* queue) {
    ctx->save_for_backward({tokens, table});
    ctx->saved_data["queue"] = reinterpret_cast<std::int64_t>(queue);
    return at::embedding(table, tokens);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    auto* queue = reinterpret_cast<WeightGradQueue*>(ctx->saved_data["queue"].toInt());
    const at::Tensor &tokens = saved[0], &table = saved[1];
    if (queue == nullptr) return {{}, table_gradient(grads[0], tokens, table.size(0)), {}};
    const at::Tensor own_table = parameter_of(table);
    queue->push({own_table}, {grads[0], tokens}, [grad = grads[0], tokens, own_table] {
      add_to_gradient(own_table, table_gradient(grad, tokens, own_table.size(0)));
    });
    return {{}, {}, {}};
  }
};

}  // namespace

at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& table, WeightGradQueue* queue) {
  return EmbeddingFunction::apply(tokens, table, queue);
}

}  // namespace sluice::nn
