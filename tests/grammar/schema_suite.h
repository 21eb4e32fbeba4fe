// Reads suites in the layout of JSON-Schema-Test-Suite: a file is a list of groups, a group a schema with
// instances.
#pragma once

#include <string>
#include <vector>

#include "grammar/schema/options.h"

namespace deepinfer::schema {

struct SuiteTest {
  std::string description, instance;  // the instance as JSON text
  bool valid = false;
};

struct SuiteGroup {
  std::string file;  // "draft2020-12/allOf.json"
  std::string description, schema;
  std::vector<SuiteTest> tests;
  /// Unique within a suite: "draft2020-12/allOf.json: allOf with base schema".
  std::string name() const { return file + ": " + description; }
};

/// Every group of tests/data/json-schema-test-suite/<directory>/*.json, files in order of their names.
std::vector<SuiteGroup> load_suite(const std::string& directory);

/// The remote documents of the suite and the published metaschemas, by URI.
SchemaDocuments suite_documents();

}  // namespace deepinfer::schema
