//! The commands and flags, and their help.

use clap::{Arg, ArgAction, ArgGroup, Command};

use crate::config::flag::{PROXY_HEADING, flags};

/// The commands, in the groups of the help.
const GROUPS: [(&str, &[&str]); 3] = [
    ("Run", &["serve", "proxy", "healthcheck", "stats"]),
    ("Operate", &["check", "audit", "key", "token"]),
    ("Set up", &["migrate", "config", "completions"]),
];

/// Settings that a command shows in its own help. It accepts all of them.
const FOR_THE_STORE: [&str; 4] = ["config", "store", "store_file", "prefix"];
/// Settings that `onceward proxy -h` shows besides those of the proxy.
const FOR_THE_PROXY: [&str; 4] = ["config", "listen", "admin_listen", "store"];
const FOR_THE_SERVICE: [&str; 3] = ["config", "listen", "admin_listen"];

/// The sources of settings.
const GIVING: &str = "Every setting is also an environment variable (ONCEWARD_TOKEN_TTL for --token-ttl) and a key in a TOML file (token_ttl). \
     Flags override the environment, and the environment overrides the file. Flags may precede or follow a command.\n\
     Durations: 250ms, 90s, 10m, 24h. Pass secrets as files, for example with --api-key-file.";

/// Exit codes of a command without codes of its own.
const EXIT_CODES: &str = "0 success, 1 a problem, 2 wrong usage or invalid setting";

/// Returns the whole command line.
pub(super) fn command() -> Command {
    let commands = [
        serve(),
        proxy(),
        healthcheck(),
        stats(),
        check(),
        audit(),
        key(),
        token(),
        migrate(),
        config(),
        completions(),
    ];
    let listed = groups(&commands);
    Command::new("onceward")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Makes a submission take effect once, however often it is sent: one-time tokens, idempotency keys and intervals.")
        .before_help(listed)
        .help_template("{about-with-newline}\n{usage-heading} {usage}\n\n{before-help}{all-args}{after-help}")
        .override_usage("onceward [SETTINGS] [COMMAND]")
        .after_help(format!("Without a command, onceward runs `serve`.\n{GIVING}\nExit codes: {EXIT_CODES}."))
        // `groups` lists them.
        .subcommands(commands.map(|command| command.hide(true)))
        .disable_help_subcommand(true)
        .args(flags())
}

/// Returns the command line with every command visible, for completions.
pub(super) fn listed() -> Command {
    let names: Vec<_> = command().get_subcommands().map(|command| command.get_name().to_owned()).collect();
    names.iter().fold(command(), |command, name| command.mut_subcommand(name, |command| command.hide(false)))
}

/// Returns the list of commands under their headings.
fn groups(commands: &[Command]) -> String {
    let about = |name: &str| {
        let command = commands.iter().find(|command| command.get_name() == name);
        command.and_then(Command::get_about).map(ToString::to_string).unwrap_or_default()
    };
    let line = |name: &&str| format!("  {name:<12} {}\n", about(name));
    let group =
        |(heading, names): (&str, &[&str])| format!("{heading}:\n{}\n", names.iter().map(line).collect::<String>());
    let listed: String = GROUPS.into_iter().map(group).collect();
    format!("{listed}See `onceward COMMAND --help` for details, an example and exit codes.")
}

fn serve() -> Command {
    Command::new("serve")
        .about("Run the service (the default)")
        .after_help(format!(
            "Example:\n  onceward serve --store redis://127.0.0.1:6379 --api-key-file /run/secrets/api_key\n\n\
             Exit codes: 0 stopped by SIGTERM or SIGINT, 1 could not start or failed, 2 wrong usage or invalid setting.\n\n{GIVING}"
        ))
        .args(flags())
}

fn proxy() -> Command {
    let is_shown =
        |flag: &Arg| flag.get_help_heading() == Some(PROXY_HEADING) || FOR_THE_PROXY.contains(&flag.get_id().as_str());
    let flags = flags().map(|flag| {
        let is_hidden = !is_shown(&flag);
        flag.hide_short_help(is_hidden)
    });
    Command::new("proxy")
        .about("Run a proxy in front of a backend")
        .long_about(
            "Run a proxy in front of a backend.\n\n\
             The proxy forwards requests to `upstream`, any HTTP/1.1 server, which needs no change. A request with an `Idempotency-Key` header \
             runs at most once, and a duplicate receives the stored response; so does a duplicate of a request with a token. Every other \
             request passes, unless `require` rejects it. `[[proxy.route]]` in the settings file sets a policy for a path.",
        )
        .after_help(format!(
            "Example:\n  onceward proxy --upstream http://127.0.0.1:3000\n  onceward proxy --upstream http://127.0.0.1:3000 --inject --require either\n\n\
             Exit codes: 0 stopped by SIGTERM or SIGINT, 1 could not start or failed, 2 wrong usage or invalid setting.\n\n{GIVING}"
        ))
        .disable_help_subcommand(true)
        .args(flags)
        .subcommand(explain())
}

fn explain() -> Command {
    let command = named(
        "explain",
        "Show which rule a request gets, and why",
        "Reads the settings and sends nothing: shows the route that matches a method and a path, why earlier routes do not match, and every \
         rule of its policy.",
        "onceward proxy explain POST /orders/7 --config onceward.toml",
        "0 success, 2 wrong usage or invalid setting",
    );
    let command = command.arg(Arg::new("METHOD").required(true).help("The method, as in POST")).arg(
        Arg::new("PATH").required(true).help("The path as a client sends it, as in /orders/7; a query is ignored"),
    );
    with_settings(command, &["config", "proxy_path", "require", "body_limit"])
}

fn healthcheck() -> Command {
    let timeout = value("timeout", "DURATION", "Timeout of the request").default_value("2s");
    let command = named(
        "healthcheck",
        "Check whether the running service is ready",
        "Sends GET /readyz to the address in `listen` (to 127.0.0.1 if that is 0.0.0.0). If `upstream` is set, as for `onceward proxy`, it sends \
         GET /_onceward/readyz: /readyz belongs to the application. For the health check of a container.",
        "HEALTHCHECK CMD [\"onceward\", \"healthcheck\"]",
        "0 ready, 1 not ready or not reachable, 2 wrong usage or invalid setting",
    );
    with_settings(command.arg(timeout), &["config", "listen", "upstream", "proxy_path"])
}

fn stats() -> Command {
    let watch = switch("watch", "Refresh until Ctrl-C, with rates per second");
    let every = value("every", "DURATION", "Refresh interval, with --watch").default_value("2s").requires("watch");
    let count = value("count", "COUNT", "Number of refreshes, with --watch [default: until Ctrl-C]").requires("watch");
    let timeout = value("timeout", "DURATION", "Timeout of a request").default_value("2s");
    let command = named(
        "stats",
        "Show the metrics of the running service",
        "Reads /metrics of the running service: tokens issued, verdicts by policy and code, requests in flight, latency of the store.",
        "onceward stats --watch",
        "0 success, 1 the service is not reachable, 2 wrong usage or invalid setting",
    );
    with_settings(command.args([watch, every, count, timeout]), &FOR_THE_SERVICE)
}

fn check() -> Command {
    let strict = switch("strict", "Exit with 1 on warnings too");
    let command = named(
        "check",
        "Check the settings and the store, and show what a failure can lose",
        "Shows every setting and its source, with secrets masked, and probes the store. For Redis it reports the version, the role (replica or \
         master), memory and eviction policy, missing ACL permissions, and what a crash or a failover loses. It writes one record under a \
         unique name, which expires after a second.",
        "onceward check --store redis://127.0.0.1:6379",
        "0 fit for use, 1 not fit (with --strict also on warnings), 2 wrong usage or invalid setting",
    );
    with_settings(command.arg(strict), &FOR_THE_STORE)
}

fn audit() -> Command {
    let files = Arg::new("FILE")
        .action(ArgAction::Append)
        .help("Logs of the service or of applications, as JSON lines; `-` or none reads stdin");
    let wait = switch("wait", "Wait up to a lease, until the owner of every claim is known to be alive or gone");
    let command = named(
        "audit",
        "List claims in a log whose owner crashed or whose outcome is unknown",
        "Reads the log that `--log json` writes (or that an application writes as JSON for the target onceward::event), finds claims without \
         an end, looks each up in the store, and lists those whose owner crashed, and those that ended as unknown and are still held. \
         Before it reports a crashed owner, it reads the record twice, a lease apart (15 s by default), so clock differences do not matter. \
         A claim of a process that died less than a lease ago looks alive until then; --wait waits for it. A log must contain JSON lines of \
         Onceward at level info or finer; other lines in it are counted and skipped.",
        "onceward audit --store redis://127.0.0.1:6379 /var/log/onceward/*.log\n  journalctl -u onceward -o cat | onceward audit --wait",
        "0 no such claim, 1 at least one, or a problem, 2 wrong usage, invalid setting or unreadable log",
    );
    with_settings(command.arg(files).arg(wait), &FOR_THE_STORE)
}

fn key() -> Command {
    let look = named(
        "look",
        "Show the record of a key, without changing it",
        "",
        "onceward key look order-4711 --action 'POST /payments' --subject alice\n  onceward key look ticket:key:3q2-7w…",
        EXIT_CODES,
    );
    let settle = named(
        "settle",
        "Settle a run whose outcome is unknown: --applied or --not-applied",
        "Does not touch a run that may still be alive: unless its owner has recorded that the outcome is unknown, this command reads the \
         record twice, a lease apart (15 s by default). With --json it prints a line that can be appended to the log, so that `audit` no \
         longer lists the run.",
        "onceward key settle ticket:key:3q2-7w… --applied --status 201 --body-file answer.json --header 'content-type: application/json'\n  \
         onceward key settle order-4711 --action 'POST /payments' --subject alice --not-applied",
        "0 settled, 1 not settled, 2 wrong usage or invalid setting",
    );
    let settle = settle
        .arg(switch(
            "applied",
            "The run took effect: a duplicate receives the reply given here, or 409 reply_not_kept without one",
        ))
        .arg(switch("not-applied", "The run had no effect: the next request with the key runs"))
        .group(ArgGroup::new("effect").args(["applied", "not-applied"]).required(true))
        .arg(value("status", "STATUS", "Status of the reply [default: 200]").conflicts_with("not-applied"))
        .arg(value("body_file", "FILE", "File with the body of the reply").conflicts_with("not-applied"))
        .arg(
            value("header", "HEADER", "Header of the reply, as in `content-type: text/plain`")
                .action(ArgAction::Append)
                .conflicts_with("not-applied"),
        )
        .arg(value("run", "ID", "Settle this run only, as `audit` names it"))
        .arg(value("retain", "DURATION", "Retention of the reply [default: 24h]").conflicts_with("not-applied"));
    Command::new("key")
        .about("Show the record of a key, or settle a run whose outcome is unknown")
        .after_help("Example:\n  onceward key look order-4711 --action 'POST /payments' --subject alice")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommands([
            with_settings(with_ticket(look), &FOR_THE_STORE),
            with_settings(with_ticket(settle), &FOR_THE_STORE),
        ])
}

/// Adds the arguments that select a key.
fn with_ticket(command: Command) -> Command {
    command
        .arg(Arg::new("KEY").value_name("KEY or TICKET").help(
            "The key that the client sent, with its --action; or its ticket, as `audit` and the log print it (ticket:key:…)",
        ))
        .arg(value("key", "KEY", "The key, even if it begins with `ticket:`"))
        .arg(value("ticket", "TICKET", "The ticket"))
        .arg(value("action", "ACTION", "The action the key was sent for, as in `POST /payments`"))
        .arg(value("subject", "NAME", "The subject that sent the key [default: anonymous]"))
        .group(ArgGroup::new("which").args(["KEY", "key", "ticket"]).required(true))
}

fn token() -> Command {
    let action = |help: &'static str| value("action", "ACTION", help);
    let subject = |help: &'static str| value("subject", "NAME", help);
    let which = || {
        Arg::new("TOKEN")
            .required(true)
            .help("The token; `-` reads it from stdin, which keeps it out of the shell history and the process list")
    };
    let issue = named(
        "issue",
        "Issue tokens, one per line",
        "",
        "onceward token issue --action 'POST /orders' --ttl 10m --count 3",
        EXIT_CODES,
    )
    .arg(action("Bind the token to this action, as in `POST /orders`"))
    .arg(subject("Bind the token to this subject"))
    .arg(value("ttl", "DURATION", "Time until the token expires, 1s to 24h [default: token_ttl]"))
    .arg(value("count", "COUNT", "Number of tokens, up to 1000").default_value("1"));
    let inspect = named(
        "inspect",
        "Show the signature, binding, expiry and state of a token, without using it",
        "",
        "onceward token inspect - < token.txt",
        "0 the token can be used, 1 it cannot, or a problem, 2 wrong usage or invalid setting",
    )
    .arg(which())
    .arg(action("The action that the token is bound to, required to check its signature"))
    .arg(subject("The subject that the token is bound to"));
    let revoke = named(
        "revoke",
        "Revoke a token: requests with it are rejected as token_revoked",
        "",
        "onceward token revoke - < token.txt",
        "0 revoked, or not on record, 1 used, in use or malformed, or a problem, 2 wrong usage or invalid setting",
    )
    .arg(which());
    let commands = [issue, inspect, revoke].map(|command| with_settings(command, &FOR_THE_STORE));
    Command::new("token")
        .about("Issue, inspect or revoke tokens")
        .after_help("Example:\n  onceward token issue --store redis://127.0.0.1:6379")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommands(commands)
}

fn migrate() -> Command {
    let print = switch("print-sql", "Print the statements instead of running them");
    let command = named(
        "migrate",
        "Create or update the tables of Onceward in a database",
        "Creates missing tables in the database of `store` and updates tables of an earlier version. It is idempotent and can run while the \
         service runs. The tables store the records of the service, and the claims of applications in their own transactions. Redis and the \
         memory store need no tables.",
        "onceward migrate --store postgres://shop@127.0.0.1/shop\n  onceward migrate --store sqlite:/var/lib/onceward.db\n  \
         onceward migrate --store postgres://shop@127.0.0.1/shop --print-sql > migrations/onceward.sql",
        EXIT_CODES,
    );
    with_settings(command.arg(print), &FOR_THE_STORE)
}

fn config() -> Command {
    let init = named(
        "init",
        "Print a settings file with every setting, its default and its description",
        "",
        "onceward config init > onceward.toml",
        EXIT_CODES,
    );
    let schema = named(
        "schema",
        "Print the JSON Schema of the settings file, for editors",
        "",
        "onceward config schema > onceward.schema.json",
        EXIT_CODES,
    );
    Command::new("config")
        .about("Print a settings file, or its JSON Schema")
        .after_help("Example:\n  onceward config init > onceward.toml")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommands([init, schema])
}

fn completions() -> Command {
    let shell = Arg::new("SHELL").required(true).value_parser(["bash", "fish", "zsh"]).help("The shell");
    named(
        "completions",
        "Print a completion script for bash, fish or zsh",
        "",
        "onceward completions bash > /etc/bash_completion.d/onceward\n  onceward completions zsh > ~/.zfunc/_onceward\n  \
         onceward completions fish > ~/.config/fish/completions/onceward.fish",
        EXIT_CODES,
    )
    .arg(shell)
}

/// Returns a command with its help: summary, details, an example and the exit codes. Each accepts `--json`.
fn named(
    name: &'static str,
    about: &'static str,
    more: &'static str,
    example: &str,
    exit_codes: &'static str,
) -> Command {
    let command = Command::new(name)
        .about(about)
        .after_help(format!("Example:\n  {example}\n\nExit codes: {exit_codes}."))
        .arg(switch("json", "Print JSON"));
    if more.is_empty() { command } else { command.long_about(format!("{about}.\n\n{more}")) }
}

/// Adds all settings; the help of the command shows only some of them.
fn with_settings(command: Command, shown: &[&str]) -> Command {
    let example = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let flags = flags().map(|flag| {
        let is_shown = shown.contains(&flag.get_id().as_str());
        flag.help_heading("Settings").hide_short_help(false).hide(!is_shown)
    });
    command.args(flags).after_help(format!(
        "{example}\n\nAccepts all settings of the service, from flags, environment and file: see `onceward --help`."
    ))
}

fn switch(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

fn value(name: &'static str, of: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name.replace('_', "-")).value_name(of).help(help)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns every command with its path.
    fn all(command: Command, path: &str) -> Vec<(String, Command)> {
        let path = format!("{path} {}", command.get_name()).trim().to_owned();
        let below = command.get_subcommands().cloned().flat_map(|below| all(below, &path)).collect::<Vec<_>>();
        [(path, command)].into_iter().chain(below).collect()
    }

    #[test]
    fn command_line_definition_is_valid() {
        command().debug_assert();
    }

    #[test]
    fn every_command_is_listed_explained_and_has_an_example() {
        let (listed, command) = (groups(&command().get_subcommands().cloned().collect::<Vec<_>>()), command());
        for below in command.get_subcommands() {
            assert!(listed.contains(&format!("\n  {} ", below.get_name())), "{} is not in\n{listed}", below.get_name());
        }
        for (path, mut command) in all(command, "").into_iter().skip(1) {
            assert!(command.get_about().is_some(), "{path}");
            let help = command.render_long_help().to_string();
            assert!(
                help.contains("Example")
                    && (help.contains("--json")
                        || command.has_subcommands()
                        || path == "onceward serve"
                        || path == "onceward proxy"),
                "{path}:\n{help}"
            );
        }
    }
}
