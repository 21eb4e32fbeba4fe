#include "grammar/schema_suite.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/check.h"

namespace deepinfer::schema {
namespace {

namespace fs = std::filesystem;
const fs::path kData = "tests/data";

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  DI_CHECK(in.good(), "cannot read ", path.string());
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace

std::vector<SuiteGroup> load_suite(const std::string& directory) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(kData / "json-schema-test-suite" / directory)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<SuiteGroup> out;
  for (const fs::path& file : files) {
    for (const auto& group : nlohmann::ordered_json::parse(read_file(file))) {
      SuiteGroup g;
      g.file = directory + "/" + file.filename().string();
      g.description = group.at("description");
      g.schema = group.at("schema").dump();
      for (const auto& test : group.at("tests")) {
        g.tests.push_back({test.at("description"), test.at("data").dump(), test.at("valid")});
      }
      out.push_back(std::move(g));
    }
  }
  return out;
}

SchemaDocuments suite_documents() {
  SchemaDocuments out;
  const fs::path remotes = kData / "json-schema-test-suite" / "remotes";
  for (const auto& entry : fs::recursive_directory_iterator(remotes)) {
    if (entry.path().extension() != ".json") continue;
    out["http://localhost:1234/" + fs::relative(entry.path(), remotes).generic_string()] =
        read_file(entry.path());
  }
  const fs::path meta = kData / "json-schema-metaschemas";
  for (const auto& entry : fs::recursive_directory_iterator(meta / "draft2020-12")) {
    if (!entry.is_regular_file()) continue;
    out["https://json-schema.org/draft/2020-12/" +
        fs::relative(entry.path(), meta / "draft2020-12").generic_string()] = read_file(entry.path());
  }
  out["http://json-schema.org/draft-07/schema"] = read_file(meta / "draft7" / "schema");
  return out;
}

}  // namespace deepinfer::schema
