// The normal form holds exactly the values that the official suites call valid, for every schema it takes.
#include <gtest/gtest.h>

#include "grammar/schema_membership.h"
#include "grammar/schema_suite.h"

namespace deepinfer::schema {
namespace {

void check_suite(const std::string& directory, SchemaDraft draft, FormatMode formats,
                 std::size_t least_schemas) {
  SchemaOptions options;
  options.default_draft = draft;
  options.formats = formats;
  options.documents = suite_documents();
  std::size_t taken = 0, total = 0;
  for (const SuiteGroup& group : load_suite(directory)) {
    ++total;
    auto set = SchemaSet::load(group.schema, options.default_draft, options.documents, options.json_limits);
    ASSERT_TRUE(set.ok()) << group.name() << ": " << set.error().to_string();
    grammar::RegexPool pool;
    StringAlgebra strings(pool);
    Normaliser normaliser(**set, strings, options);
    const auto root = normaliser.root();
    ASSERT_TRUE(root.ok()) << group.name();
    bool whole = true;
    for (const SuiteTest& test : group.tests) {
      const auto value = parse_json_value(test.instance);
      ASSERT_TRUE(value.ok()) << test.instance;
      const auto verdict = is_member(normaliser, *root, *value);
      if (!verdict.ok()) {
        ADD_FAILURE() << group.name() << " / " << test.description << ": " << verdict.error().to_string();
        whole = false;
        break;
      }
      EXPECT_EQ(*verdict, test.valid) << group.name() << " / " << test.description << "\n  schema "
                                      << group.schema << "\n  value " << test.instance;
    }
    taken += whole ? 1 : 0;
  }
  EXPECT_GE(taken, least_schemas) << "of " << total;
}

TEST(SchemaNormalForm, AgreesWithDraft202012) {
  check_suite("draft2020-12", SchemaDraft::kDraft202012, FormatMode::kAnnotate, 300);
}
TEST(SchemaNormalForm, AgreesWithDraft7) {
  check_suite("draft7", SchemaDraft::kDraft7, FormatMode::kAnnotate, 200);
}

}  // namespace
}  // namespace deepinfer::schema
