// The JSON spelling of a set of numbers as a regular expression.
//
// Numbers without further constraint, with only a sign, or integral may have an exponent; all others (bounds,
// multiples, exclusions, constants) are spelled without one, because their digits are what is compared. An
// integral number may have a fraction of zeros ("1.0"), as drafts since 6 say. Digits are bounded by the
// options, or by what the bounds need when that is more.
#pragma once

#include "base/result.h"
#include "grammar/regex_pool.h"
#include "grammar/schema/form.h"
#include "grammar/schema/options.h"

namespace deepinfer::schema {

/// kUnsupported when a multipleOf needs more remainders than RegexPool::kMaxModulus.
Result<grammar::RegexId> number_language(grammar::RegexPool& pool, const NumberBranch& branch,
                                         const SchemaOptions& options);

}  // namespace deepinfer::schema
