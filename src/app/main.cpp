// The `sluice` command.
#include "app/program.h"

int main(int argc, char** argv) { return sluice::app::run_program(argc, argv); }
