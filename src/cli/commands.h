// The subcommands of the program `deepinfer`, one file each (<name>_command.cc).
//
// A register function adds its subcommand and options to `app`. When the user chose it, its callback runs
// and stores the program's exit code (common.h) in `exit_code`; both outlive the parse. Keep the command
// files short: options, one call into the library, printing.
#pragma once

namespace CLI {
class App;
}

namespace deepinfer::cli {

void register_convert(CLI::App& app, int& exit_code);
void register_bench(CLI::App& app, int& exit_code);
void register_eval(CLI::App& app, int& exit_code);
void register_inspect(CLI::App& app, int& exit_code);
void register_plan(CLI::App& app, int& exit_code);
void register_chat(CLI::App& app, int& exit_code);
void register_complete(CLI::App& app, int& exit_code);
void register_doctor(CLI::App& app, int& exit_code);
void register_grammar(CLI::App& app, int& exit_code);
void register_run(CLI::App& app, int& exit_code);
void register_show(CLI::App& app, int& exit_code);
void register_version(CLI::App& app, int& exit_code);

}  // namespace deepinfer::cli
