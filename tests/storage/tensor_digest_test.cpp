#include "storage/tensor_digest.h"

#include <gtest/gtest.h>

#include <set>

#include <ATen/ATen.h>

#include "storage/checksum.h"

namespace sluice::storage {
namespace {

TEST(TensorDigest, IsThatOfTheElementsInRowMajorOrder) {
  const at::Tensor rows = at::arange(12, at::kFloat).view({3, 4});
  EXPECT_EQ(digest_of_tensor(rows), digest_text({static_cast<const char*>(rows.const_data_ptr()), 48}).xxh3_128);
  EXPECT_EQ(digest_of_tensor(rows.t().contiguous().t()), digest_of_tensor(rows)) << "in memory column by column";
  EXPECT_EQ(digest_of_tensor(at::cat({rows, rows}).narrow(0, 3, 3)), digest_of_tensor(rows)) << "part of another";
  EXPECT_NE(digest_of_tensor(rows.t()), digest_of_tensor(rows));
}

TEST(TensorDigest, ChangesWithEachBitNameShapeAndType) {
  const at::Tensor tensor = at::linspace(-1, 1, 6);
  const TensorMap base{{"a", tensor}, {"b", at::ones({2, 3})}};
  std::set<std::string> seen{digest_of_tensors(base)};
  const auto expect_new = [&](TensorMap changed) { EXPECT_TRUE(seen.insert(digest_of_tensors(changed)).second); };
  for (int element = 0; element < 6; ++element) {
    for (int bit = 0; bit < 32; ++bit) {
      const at::Tensor other = tensor.clone();
      static_cast<std::int32_t*>(other.mutable_data_ptr())[element] ^= static_cast<std::int32_t>(1U << bit);
      expect_new({{"a", other}, {"b", base.at("b")}});
    }
  }
  expect_new({{"A", tensor}, {"b", base.at("b")}});
  expect_new({{"a", tensor.view({2, 3})}, {"b", base.at("b")}});
  expect_new({{"a", tensor}, {"b", at::ones({3, 2})}});
  expect_new({{"a", tensor}});
  expect_new({{"a", at::zeros({2})}});
  expect_new({{"a", at::zeros({2}, at::kInt)}});  // the same bytes
  EXPECT_TRUE(seen.contains(digest_of_tensors(base)));
}

}  // namespace
}  // namespace sluice::storage
