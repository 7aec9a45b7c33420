#include <cstdio>
#include <cstdlib>

#include "app/program.h"

int main(int argc, char** argv) {
  const int code = sluice::app::run_program(argc, argv);
#ifndef __SANITIZE_ADDRESS__  // LeakSanitizer reports at a full exit
  std::fflush(nullptr);
  std::_Exit(code);  // the destructors of LibTorch's operators take 0.1 s and save nothing
#else
  return code;
#endif
}
