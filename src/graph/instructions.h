// instructions: the nodes of a section, ready to run on ATen's dispatcher. What does not change between calls
// (operators, fixed arguments) is looked up once. Threads: const, any number.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include "graph/patterns.h"
#include "graph/program.h"
#include "graph/sections.h"
#include "nn/layer.h"

namespace sluice::graph {

enum class Mode : std::uint8_t { kTraining, kEvaluation };

// One node. Its values are in the slots of a call.
struct Instruction {
  enum class Kind : std::uint8_t { kOperator, kNumber, kRandom, kPattern };
  // An argument that is known in the call.
  struct Fill {
    enum class As : std::uint8_t { kValue, kNumberTensor, kTensors, kOptionalTensors, kNumbers };
    int argument = 0;
    std::vector<int> slots = {};             // -1: no tensor, or a fixed number
    std::vector<std::int64_t> numbers = {};  // those that are fixed
    As as = As::kValue;
  };

  Kind kind = Kind::kOperator;
  const Node* node = nullptr;
  std::optional<c10::OperatorHandle> op;
  std::vector<c10::IValue> arguments;
  std::vector<Fill> fills;
  std::vector<int> device_arguments;
  std::vector<int> outputs;  // slots; -1: not wanted
  // Values whose Value::order is kept: [output], and of the first argument. Null: any order.
  std::vector<const Value*> ordered_outputs;
  const Value* ordered_argument = nullptr;
  std::vector<int> last_uses;     // slots that no later instruction takes
  int batch_dim = 0;              // of a random node: the dimension of the samples
  const char* pattern = nullptr;  // name of the pattern; null: one node
  std::function<at::Tensor(const nn::Tensors&, const nn::ForwardContext&)> run;  // of kPattern: computes the output
};

struct InstructionOptions {
  Mode mode = Mode::kTraining;
  at::ScalarType from = at::kFloat, to = at::kFloat;  // floating-point type of the export, and of the model
  std::vector<Pattern> patterns = {};                 // that replace nodes of the section
  const std::vector<bool>* order_is_seen = nullptr;   // seen_orders() of the program; null: all nodes run as they are
};

// The device of the first tensor with a dimension: numbers may be on the CPU. Nothing if there is no such tensor.
[[nodiscard]] std::optional<at::Device> device_of(const nn::Tensors& tensors);

class Instructions {
 public:
  // Errors: ConfigError for an operator that LibTorch does not have, or that is random in a way that is not supported.
  // `program` outlives this.
  Instructions(const Program& program, const Section& section, const InstructionOptions& options);

  // states: of section.states, in order. inputs: of section.inputs. Returns those of section.outputs.
  [[nodiscard]] nn::Tensors run(const nn::Tensors& states, const nn::Tensors& inputs,
                                const nn::ForwardContext& context) const;
  // As nn::Layer::calls().
  [[nodiscard]] std::map<std::string, int> calls() const;

 private:
  int slot_of(ValueId value);
  void add_nodes(const Section& section, const InstructionOptions& options);
  void add(const Node& node, const InstructionOptions& options);
  void add(const Pattern& pattern);
  // states: values of states that the section writes to.
  void note_special(const Node& node, const Section& section, std::set<ValueId>& states);
  void check_context(const nn::ForwardContext& context) const;
  void keep_order(const Node& node, bool is_pattern, const InstructionOptions& options);
  void reshape_views(const Node& node, const Section& section);
  void add_numbers(const Node& node, Instruction& instruction) const;
  void note_last_uses();
  class Call;
  [[nodiscard]] c10::IValue input_value(std::size_t i, const at::Tensor& tensor) const;
  [[nodiscard]] nn::Tensors outputs_of(Call& call, const nn::Tensors& inputs) const;

  const Program& program_;
  Mode mode_;
  std::vector<int> slots_;  // [value]; -1: not in this section
  int slot_count_ = 0;
  std::vector<int> state_slots_, input_slots_, output_slots_;
  std::vector<bool> is_state_written_, is_written_;  // an operator in place may write to the state, or to the input
  std::vector<bool> is_number_input_, is_input_;     // [input]; inputs of the model carry no gradient
  std::string written_state_;                        // name of a state that an operator writes to, or empty
  const Node* norm_ = nullptr;                       // a batch norm in training that no layer of ours stands for
  const Node* reader_ = nullptr;                     // a node that reads a state which the section writes to
  std::vector<int> passed_on_;                       // [output]: input that is passed on unchanged; -1: computed here
  std::vector<Instruction> instructions_;
};

}  // namespace sluice::graph
