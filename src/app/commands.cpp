#include "app/commands.h"

namespace sluice::app {

void add_commands(CLI::App& app) {
  add_train(app);
  add_serve(app);
  add_eval(app);
  add_step(app);
  add_profile(app);
  add_tune(app);
  add_config(app);
  add_report(app);
  add_schedule(app);
  add_batch_plan(app);
  add_simulate(app);
  add_memory(app);
  add_replay(app);
  add_make_keys(app);
  add_listings(app);
}

}  // namespace sluice::app
