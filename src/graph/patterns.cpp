#include "graph/patterns.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include <ATen/ATen.h>

#include "graph/aliases.h"
#include "nn/conv.h"
#include "nn/gelu.h"
#include "nn/linear.h"
#include "nn/rms_norm.h"
#include "nn/swiglu.h"

namespace sluice::graph {
namespace {

using nn::Tensors;

// The arguments of a node by name.
class Arguments {
 public:
  explicit Arguments(const Node& node) : node_(node) {}

  template <typename T>
  [[nodiscard]] std::optional<T> get(std::string_view name) const {
    const auto found = std::ranges::find(node_.arguments, name, &NamedArgument::name);
    if (found == node_.arguments.end()) return std::nullopt;
    const T* value = std::get_if<T>(&found->value);
    return value == nullptr ? std::nullopt : std::optional(*value);
  }
  [[nodiscard]] ValueId value(std::string_view name) const {
    const auto tensor = get<TensorArgument>(name);
    return tensor ? tensor->value : kNoValue;
  }
  // A number, fixed, of either type.
  [[nodiscard]] std::optional<double> number(std::string_view name) const {
    if (const auto real = get<double>(name)) return real;
    const auto whole = get<Number>(name);
    return whole && whole->value == kNoValue ? std::optional(static_cast<double>(whole->fixed)) : std::nullopt;
  }
  // The entry that all of a list have in common.
  [[nodiscard]] std::optional<std::int64_t> common(std::string_view name, std::int64_t missing) const {
    const auto list = get<std::vector<Number>>(name);
    if (!list) return std::ranges::find(node_.arguments, name, &NamedArgument::name) == node_.arguments.end()
                          ? std::optional(missing)
                          : std::nullopt;
    for (const Number& number : *list) {
      if (number.value != kNoValue || number.fixed != list->front().fixed) return std::nullopt;
    }
    return list->empty() ? std::nullopt : std::optional(list->front().fixed);
  }

 private:
  const Node& node_;
};

bool is_one_of(const Node& node, std::initializer_list<std::string_view> targets) {
  return std::ranges::find(targets, node.target) != targets.end();
}

class Finder {
 public:
  Finder(const Program& program, const Section& section, const PatternOptions& options)
      : program_(program),
        section_(section),
        options_(options),
        aliases_(find_aliases(program)),
        maker_(program.values.size(), -1),
        users_(program.values.size()) {
    for (const int n : section.nodes) {
      for (const ValueId value : program.nodes[n].outputs) {
        if (value != kNoValue) maker_[value] = n;
      }
      if (is_assertion(program.nodes[n])) continue;
      for_each_use(program.nodes[n], [&](ValueId value) {
        if (users_[value].empty() || users_[value].back() != n) users_[value].push_back(n);
      });
    }
    kept_.insert(section.gives.begin(), section.gives.end());
  }

  std::vector<Pattern> find() {
    for (const int n : section_.nodes) {
      if (!taken_.contains(n)) find_at(n);
    }
    std::ranges::sort(found_, {}, [](const Pattern& pattern) { return pattern.nodes.back(); });
    return std::move(found_);
  }

 private:
  [[nodiscard]] const Node& node(int n) const { return program_.nodes[n]; }
  [[nodiscard]] ValueId output(int n) const { return node(n).outputs.front(); }

  // The only node that takes the value, which no later section takes; -1: there are several or none.
  [[nodiscard]] int sole_user(ValueId value) const {
    return users_[value].size() == 1 && !kept_.contains(value) && !taken_.contains(users_[value].front())
               ? users_[value].front()
               : -1;
  }
  [[nodiscard]] const Input* input(ValueId value) const {
    return value != kNoValue && static_cast<std::size_t>(value) < program_.inputs.size() ? &program_.inputs[value]
                                                                                        : nullptr;
  }
  [[nodiscard]] const Input* parameter(ValueId value) const {
    const Input* const found = input(value);
    return found != nullptr && found->kind == InputKind::kParameter ? found : nullptr;
  }
  [[nodiscard]] std::size_t dims(ValueId value) const { return program_.values[value].sizes.size(); }
  [[nodiscard]] bool has_same_sizes(ValueId a, ValueId b) const {
    return program_.values[a].sizes == program_.values[b].sizes;
  }

  // A layer trains weight and bias, or neither.
  [[nodiscard]] bool are_weights(ValueId weight, ValueId bias) const {
    if (parameter(weight) == nullptr || !is_untouched(weight)) return false;
    if (bias == kNoValue) return true;
    return parameter(bias) != nullptr && is_untouched(bias) &&
           options_.is_trained(*parameter(bias)) == options_.is_trained(*parameter(weight));
  }
  [[nodiscard]] bool is_untouched(ValueId value) const { return aliases_.writers[aliases_.group[value]].empty(); }

  // Adds the pattern, unless a node between its first and last writes to what it takes.
  bool add(Pattern pattern) {
    if (!can_run_at_the_end(pattern)) return false;
    std::ranges::sort(pattern.nodes);
    pattern.gives = output(pattern.nodes.back());
    taken_.insert(pattern.nodes.begin(), pattern.nodes.end());
    found_.push_back(std::move(pattern));
    return true;
  }
  [[nodiscard]] bool can_run_at_the_end(const Pattern& pattern) const {
    const auto [first, last] = std::ranges::minmax(pattern.nodes);
    const auto is_own = [&](int n) { return std::ranges::find(pattern.nodes, n) != pattern.nodes.end(); };
    // Autograd refuses operators in place on views that a layer of ours returns.
    const auto& later = aliases_.writers[aliases_.group[output(last)]];
    if (!pattern.may_be_written && !std::ranges::all_of(later, is_own)) return false;
    for (const ValueId value : pattern.takes) {
      if (value == kNoValue) continue;
      for (const int writer : aliases_.writers[aliases_.group[value]]) {
        if (writer > first && writer < last && !is_own(writer)) return false;
      }
    }
    return std::ranges::none_of(pattern.nodes, [&](int n) { return taken_.contains(n); });
  }

  void find_at(int n) {
    const Node& at = node(n);
    if (at.target == "aten::batch_norm" && options_.is_training) return find_norm(n);
    if (at.target == "aten::conv2d" && at.overload.empty()) return find_convolution(n);
    if (at.target == "aten::silu" && find_swiglu(n)) return;
    if (at.target == "aten::linear") return find_linear(n);
    if (at.target == "aten::rsqrt") return find_rms_norm(n);
    if (at.target == "aten::gelu") return find_gelu(n);
  }

  struct Products {
    ValueId x = kNoValue, weight = kNoValue, bias = kNoValue;
  };
  [[nodiscard]] std::optional<Products> linear(int n) const {
    if (n < 0 || node(n).target != "aten::linear" || taken_.contains(n)) return std::nullopt;
    const Arguments arguments(node(n));
    const Products all{arguments.value("input"), arguments.value("weight"), arguments.value("bias")};
    if (all.x == kNoValue || dims(all.x) < 2 || !are_weights(all.weight, all.bias)) return std::nullopt;
    return all;
  }

  void find_linear(int n) {
    const auto all = linear(n);
    if (!all) return;
    add({.name = "linear",
         .nodes = {n},
         .takes = {all->x, all->weight, all->bias},
         .run = [type = options_.activations](const Tensors& takes, const nn::ForwardContext& context) {
           return nn::linear(takes[0].to(type), {takes[1]}, biases({takes[2]}), context);
         },
         .may_be_written = dims(all->x) == 2});
  }
  [[nodiscard]] static std::vector<at::Tensor> biases(const std::vector<at::Tensor>& given) {
    return given.front().defined() ? given : std::vector<at::Tensor>();
  }

  // silu(gate(x)) * up(x)
  bool find_swiglu(int silu) {
    const ValueId gated = Arguments(node(silu)).value("self");
    const int gate = gated == kNoValue ? -1 : maker_[gated], product = sole_user(output(silu));
    if (gate < 0 || sole_user(gated) != silu || product < 0 || !is_one_of(node(product), {"aten::mul"})) return false;
    const Arguments factors(node(product));
    const ValueId self = factors.value("self"), other = factors.value("other");
    const ValueId upper = self == output(silu) ? other : self;
    const int up = upper == kNoValue ? -1 : maker_[upper];
    if (up < 0 || sole_user(upper) != product) return false;
    const auto first = linear(gate), second = linear(up);
    if (!first || !second || first->x != second->x || (first->bias == kNoValue) != (second->bias == kNoValue))
      return false;
    if (options_.is_trained(*parameter(first->weight)) != options_.is_trained(*parameter(second->weight))) return false;
    if (program_.values[first->weight].sizes != program_.values[second->weight].sizes) return false;
    return add({.name = "swiglu",
                .nodes = {gate, silu, up, product},
                .takes = {first->x, first->weight, second->weight, first->bias, second->bias},
                .run = [type = options_.activations](const Tensors& takes, const nn::ForwardContext& context) {
                  return nn::swiglu(nn::linear(takes[0].to(type), {takes[1], takes[2]}, biases({takes[3], takes[4]}),
                                               context));
                }});
  }

  void find_convolution(int n) {
    const Arguments arguments(node(n));
    const ValueId x = arguments.value("input"), weight = arguments.value("weight"), bias = arguments.value("bias");
    if (x == kNoValue || dims(x) != 4 || !are_weights(weight, bias)) return;
    const std::vector<Extent>& sizes = program_.values[weight].sizes;
    const auto stride = arguments.common("stride", 1), padding = arguments.common("padding", 0),
               dilation = arguments.common("dilation", 1);
    if (!stride || !padding || dilation != 1 || sizes[2].size != sizes[3].size) return;
    add({.name = "convolution",
         .nodes = {n},
         .takes = {x, weight, bias},
         .run = [type = options_.activations, stride = *stride, padding = *padding](
                    const Tensors& takes, const nn::ForwardContext& context) {
           return nn::conv2d(takes[0].to(type), takes[1], takes[2].defined() ? std::optional(takes[2]) : std::nullopt,
                             stride, padding, context.weight_queue, context.transformed_weights,
                             context.numerics.winograd);
         },
         .may_be_written = true});
  }

  void find_gelu(int n) {
    const Arguments arguments(node(n));
    const auto form = arguments.get<std::string>("approximate");
    if (form && *form != "none") return;
    add({.name = "gelu", .nodes = {n}, .takes = {arguments.value("self")}, .run = [](const Tensors& takes, const auto&) {
           return nn::gelu(takes[0]);
         }});
  }

  // The node that counts batches: count += 1.
  [[nodiscard]] int counting_node(const Input& count) const {
    const auto& writers = aliases_.writers[aliases_.group[count.value]];
    return writers.size() == 1 && node(writers.front()).target == "aten::add_" &&
                   std::ranges::binary_search(section_.nodes, writers.front()) &&
                   Arguments(node(writers.front())).number("other") == 1
               ? writers.front()
               : -1;
  }
  [[nodiscard]] const Input* count_beside(const Input& mean) const {
    const std::string name = mean.name.substr(0, mean.name.rfind('.') + 1) + "num_batches_tracked";
    const auto found = std::ranges::find_if(program_.inputs, [&](const Input& one) {
      return one.kind == InputKind::kBuffer && one.name == name;
    });
    return found == program_.inputs.end() ? nullptr : &*found;
  }

  // A batch norm, and what follows it if that is a sum with as many values, ReLU, or both.
  struct Followers {
    std::vector<int> nodes;
    ValueId residual = kNoValue;
    nn::Activation activation = nn::Activation::kNone;
  };
  [[nodiscard]] Followers followers(int norm) const {
    Followers all;
    const auto relu_of = [&](ValueId value) {
      const int user = sole_user(value);
      return user >= 0 && is_one_of(node(user), {"aten::relu", "aten::relu_"}) ? user : -1;
    };
    ValueId value = output(norm);
    if (const int sum = sole_user(value); sum >= 0 && is_one_of(node(sum), {"aten::add", "aten::add_"})) {
      const Arguments terms(node(sum));
      const ValueId self = terms.value("self"), other = terms.value("other");
      const bool is_plain = self != kNoValue && other != kNoValue && self != other && has_same_sizes(self, other) &&
                            terms.number("alpha").value_or(1) == 1;
      if (is_plain && (self == value || node(sum).target == "aten::add") && relu_of(output(sum)) >= 0) {
        all.nodes = {sum};
        all.residual = self == value ? other : self;
        value = output(sum);
      }
    }
    if (const int relu = relu_of(value); relu >= 0) {
      all.nodes.push_back(relu);
      all.activation = nn::Activation::kRelu;
    }
    return all;
  }

  void find_norm(int n) {
    const Arguments arguments(node(n));
    const ValueId x = arguments.value("input"), weight = arguments.value("weight"), bias = arguments.value("bias");
    PatternOptions::NormInputs inputs{parameter(weight), parameter(bias), input(arguments.value("running_mean")),
                                      input(arguments.value("running_var"))};
    if (x == kNoValue || dims(x) < 2 || arguments.get<bool>("training") != true) return;
    if (inputs.mean == nullptr || inputs.variance == nullptr || !inputs.mean->is_saved) return;
    if ((weight != kNoValue || bias != kNoValue) && (bias == kNoValue || !are_weights(weight, bias))) return;
    inputs.count = count_beside(*inputs.mean);
    const int counting = inputs.count == nullptr ? -1 : counting_node(*inputs.count);
    if (inputs.count != nullptr && counting < 0) return;
    Followers after = followers(n);
    Pattern pattern{.name = "batch norm", .nodes = {n}, .takes = {x, after.residual}, .may_be_written = dims(x) == 4};
    if (counting >= 0) pattern.nodes.push_back(counting);
    pattern.nodes.insert(pattern.nodes.end(), after.nodes.begin(), after.nodes.end());
    if (!can_run_at_the_end(pattern)) return;
    nn::BatchNorm2d* const norm =
        options_.make_norm(inputs, {.epsilon = arguments.number("eps").value_or(1e-5),
                                    .momentum = arguments.number("momentum").value_or(0.1)});
    pattern.run = [norm, activation = after.activation](const Tensors& takes, const nn::ForwardContext& context) {
      return normalized(*norm, takes[0], takes[1], activation, context);
    };
    pattern.norm = norm;
    add(std::move(pattern));
  }
  // The layer takes [N, C, H, W].
  [[nodiscard]] static at::Tensor normalized(nn::BatchNorm2d& norm, const at::Tensor& x, const at::Tensor& residual,
                                             nn::Activation activation, const nn::ForwardContext& context) {
    if (x.dim() == 4) return norm(x, context, activation, residual);
    const std::vector<std::int64_t> sizes{x.size(0), x.size(1), -1, 1};
    const at::Tensor rest = residual.defined() ? residual.reshape(sizes) : residual;
    return norm(x.reshape(sizes), context, activation, rest).reshape(x.sizes());
  }

  // weight * to(x * rsqrt(mean(x^2) + epsilon)), as Hugging Face writes it. `to` may be missing.
  void find_rms_norm(int rsqrt) {
    const auto made_by = [&](ValueId value, std::string_view target) {
      const int n = value == kNoValue ? -1 : maker_[value];
      return n >= 0 && node(n).target == target ? n : -1;
    };
    const int sum = made_by(Arguments(node(rsqrt)).value("self"), "aten::add");
    if (sum < 0 || sole_user(output(sum)) != rsqrt) return;
    const Arguments terms(node(sum));
    const auto epsilon = terms.number("other");
    const int mean = made_by(terms.value("self"), "aten::mean");
    if (!epsilon || mean < 0 || sole_user(output(mean)) != sum) return;
    const Arguments over(node(mean));
    const int square = made_by(over.value("self"), "aten::pow");
    if (square < 0 || sole_user(output(square)) != mean || over.common("dim", 0) != -1) return;
    if (over.get<bool>("keepdim") != true || Arguments(node(square)).number("exponent") != 2) return;
    const ValueId x = Arguments(node(square)).value("self");
    const int product = sole_user(output(rsqrt));
    if (x == kNoValue || product < 0 || node(product).target != "aten::mul") return;
    const Arguments factors(node(product));
    if (factors.value("self") != x && factors.value("other") != x) return;
    std::vector<int> nodes{square, mean, sum, rsqrt, product};
    int last = sole_user(output(product));
    if (last >= 0 && node(last).target == "aten::to" && is_same_type(last)) {
      nodes.push_back(last);
      last = sole_user(output(last));
    }
    if (last < 0 || node(last).target != "aten::mul") return;
    const Arguments scaled(node(last));
    const ValueId self = scaled.value("self"), other = scaled.value("other");
    const ValueId weight = parameter(self) != nullptr ? self : other;
    if (parameter(weight) == nullptr || dims(weight) != 1 || !is_untouched(weight) || self == other) return;
    nodes.push_back(last);
    add({.name = "rms norm",
         .nodes = std::move(nodes),
         .takes = {x, weight},
         .run = [epsilon = *epsilon](const Tensors& takes, const auto&) {
           return nn::rms_norm(takes[0], takes[1], epsilon, takes[0].scalar_type());
         }});
  }
  // A conversion to the type that the value has.
  [[nodiscard]] bool is_same_type(int to) const {
    const ValueId self = Arguments(node(to)).value("self");
    return self != kNoValue && program_.values[self].type == program_.values[output(to)].type;
  }

  const Program& program_;
  const Section& section_;
  const PatternOptions& options_;
  const Aliases aliases_;
  std::vector<int> maker_;               // [value]: node of the section; -1: none
  std::vector<std::vector<int>> users_;  // [value]: nodes of the section, ascending
  std::set<ValueId> kept_;               // for later sections
  std::set<int> taken_;                  // nodes of patterns
  std::vector<Pattern> found_;
};

}  // namespace

std::vector<Pattern> find_patterns(const Program& program, const Section& section, const PatternOptions& options) {
  return Finder(program, section, options).find();
}

}  // namespace sluice::graph
