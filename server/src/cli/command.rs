//! The grammar of the command line, and its help.

use clap::{Arg, ArgAction, ArgGroup, Command};

use crate::config::flag::flags;

/// The commands as the help lists them.
const GROUPS: [(&str, &[&str]); 3] = [
    ("Run it", &["serve", "healthcheck", "stats"]),
    ("Look after it", &["check", "audit", "key", "token"]),
    ("Set it up", &["migrate", "config", "completions"]),
];

/// Settings that a command shows in its own help, out of all that it takes.
const FOR_THE_STORE: [&str; 4] = ["config", "store", "store_file", "prefix"];
const FOR_THE_SERVICE: [&str; 3] = ["config", "listen", "admin_listen"];

/// How every setting can be given.
const GIVING: &str = "Every setting can also be given in the environment, as ONCEWARD_TOKEN_TTL for --token-ttl, and in a TOML file, as \
     token_ttl. A flag goes over the environment, the environment over the file. Flags may stand before a command or behind it.\n\
     Durations are written 90s, 10m, 24h. A secret is better given as a file, with --api-key-file and its like.";

/// The whole command line.
pub(super) fn command() -> Command {
    let commands =
        [serve(), healthcheck(), stats(), check(), audit(), key(), token(), migrate(), config(), completions()];
    let listed = groups(&commands);
    Command::new("onceward")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Makes a submission take effect once, however often it is sent: issues one-time tokens and accepts each once.")
        .before_help(listed)
        .help_template("{about-with-newline}\n{usage-heading} {usage}\n\n{before-help}{all-args}{after-help}")
        .override_usage("onceward [SETTINGS] [COMMAND]")
        .after_help(format!("Without a command it serves.\n{GIVING}\nExit codes: 0 fine, 1 a problem, 2 wrong usage or settings."))
        // They are listed above, under their headings.
        .subcommands(commands.map(|command| command.hide(true)))
        .disable_help_subcommand(true)
        .args(flags())
}

/// The same for whoever wants to see every command.
pub(super) fn listed() -> Command {
    let names: Vec<_> = command().get_subcommands().map(|command| command.get_name().to_owned()).collect();
    names.iter().fold(command(), |command, name| command.mut_subcommand(name, |command| command.hide(false)))
}

/// The commands under their headings.
fn groups(commands: &[Command]) -> String {
    let about = |name: &str| {
        let command = commands.iter().find(|command| command.get_name() == name);
        command.and_then(Command::get_about).map(ToString::to_string).unwrap_or_default()
    };
    let line = |name: &&str| format!("  {name:<12} {}\n", about(name));
    let group =
        |(heading, names): (&str, &[&str])| format!("{heading}:\n{}\n", names.iter().map(line).collect::<String>());
    let listed: String = GROUPS.into_iter().map(group).collect();
    format!("{listed}`onceward COMMAND --help` explains a command, with an example.")
}

fn serve() -> Command {
    Command::new("serve")
        .about("Run the service; what `onceward` does by itself")
        .after_help(format!(
            "Example:\n  onceward serve --store redis://127.0.0.1:6379 --api-key-file /run/secrets/api_key\n\n{GIVING}"
        ))
        .args(flags())
}

fn healthcheck() -> Command {
    let timeout = value("timeout", "DURATION", "How long the answer may take").default_value("2s");
    let command = named(
        "healthcheck",
        "Ask the running service whether it can do its work",
        "Asks /readyz where the service listens (0.0.0.0 is asked on 127.0.0.1), and ends with 0 if it is ready and with 1 if it is not.",
        "HEALTHCHECK CMD [\"onceward\", \"healthcheck\"]",
    );
    with_settings(command.arg(timeout), &["config", "listen"])
}

fn stats() -> Command {
    let watch = switch("watch", "Show them again and again, with what was added each second, until Ctrl-C");
    let every = value("every", "DURATION", "How often, with --watch").default_value("2s").requires("watch");
    let count = value("count", "COUNT", "How many times, with --watch [default: until Ctrl-C]").requires("watch");
    let timeout = value("timeout", "DURATION", "How long an answer may take").default_value("2s");
    let command = named(
        "stats",
        "Show what the running service counts",
        "Reads /metrics of the running service: tokens issued, verdicts by policy and code, replays, what runs, how long the store takes.",
        "onceward stats --watch",
    );
    with_settings(command.args([watch, every, count, timeout]), &FOR_THE_SERVICE)
}

fn check() -> Command {
    let strict = switch("strict", "End with 1 also where there is only a warning");
    let command = named(
        "check",
        "Say whether the settings and the store are fit for use, and what can be lost",
        "Shows every setting and where it came from, with secrets masked, and asks the store. Of Redis it says in words whether it is \
         too old, a replica, full or evicting, what its user may not do, and what a crash loses. It writes one record of a second, under a \
         name that nobody else has. Ends with 0 if all is fit for use, 1 if not, 2 if a setting is wrong.",
        "onceward check --store redis://127.0.0.1:6379",
    );
    with_settings(command.arg(strict), &FOR_THE_STORE)
}

fn audit() -> Command {
    let files = Arg::new("FILE")
        .action(ArgAction::Append)
        .help("Logs of the service or of applications, as JSON lines; `-` or none is the input");
    let wait = switch("wait", "Wait until it is known of every claim whether its owner is alive: up to a lease");
    let command = named(
        "audit",
        "List the claims in a log whose owner is gone",
        "Reads the log that `--log json` writes (or that an application writes of the target onceward::event, as JSON), finds claims \
         that were begun and never ended, asks the store about each, and lists those whose owner died, and those that ended as unknown \
         and are still held. That an owner died is believed after a second look, a lease after the first (15 s unless the application \
         says otherwise), whatever the clocks say. A claim of a process that died less than a lease ago looks alive until then; --wait waits for \
         it. Ends with 1 if there is any, and with 2 if a log cannot be read: no JSON lines, lines of another program, or none at the level \
         info. Foreign lines among the own are counted and skipped.",
        "onceward audit --store redis://127.0.0.1:6379 /var/log/onceward/*.log\n  journalctl -u onceward -o cat | onceward audit --wait",
    );
    with_settings(command.arg(files).arg(wait), &FOR_THE_STORE)
}

fn key() -> Command {
    let look = named(
        "look",
        "Say what is on record of a key, and change nothing",
        "",
        "onceward key look order-4711 --action 'POST /payments' --subject alice\n  onceward key look ticket:key:3q2-7w…",
    );
    let settle = named(
        "settle",
        "Settle a run whose effect is unknown: --applied or --not-applied",
        "A run that may still be alive is left alone: unless its owner has recorded that the effect is unknown, this command reads the record \
         twice, a lease apart (15 s by default). With --json it prints a line that can be appended to the log, so that `audit` no longer \
         lists the run.",
        "onceward key settle ticket:key:3q2-7w… --applied --status 201 --body-file answer.json --header 'content-type: application/json'\n  \
         onceward key settle order-4711 --action 'POST /payments' --subject alice --not-applied",
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
        .arg(value("retain", "DURATION", "How long the reply is stored [default: 24h]").conflicts_with("not-applied"));
    Command::new("key")
        .about("Show the record of a key, and settle a run whose effect is unknown: look, settle")
        .after_help("Example:\n  onceward key look order-4711 --action 'POST /payments' --subject alice")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommands([
            with_settings(with_ticket(look), &FOR_THE_STORE),
            with_settings(with_ticket(settle), &FOR_THE_STORE),
        ])
}

/// Which key it is about.
fn with_ticket(command: Command) -> Command {
    command
        .arg(Arg::new("KEY").value_name("KEY or TICKET").help(
            "The key that the client sent, with its --action; or its ticket, as `audit` and the log print it (ticket:key:…)",
        ))
        .arg(value("key", "KEY", "The key, also if it begins with `ticket:`"))
        .arg(value("ticket", "TICKET", "The ticket"))
        .arg(value("action", "ACTION", "The action the key was sent for, as in `POST /payments`"))
        .arg(value("subject", "NAME", "The client that sent the key; none is anonymous"))
        .group(ArgGroup::new("which").args(["KEY", "key", "ticket"]).required(true))
}

fn token() -> Command {
    let action = |help: &'static str| value("action", "ACTION", help);
    let subject = |help: &'static str| value("subject", "NAME", help);
    let which = || {
        Arg::new("TOKEN")
            .required(true)
            .help("The token; `-` reads it from the input, so that no history and no list of processes has it")
    };
    let issue = named(
        "issue",
        "Issue tokens, one on each line",
        "",
        "onceward token issue --action 'POST /orders' --ttl 10m --count 3",
    )
    .arg(action("Good for this action only, as in `POST /orders`"))
    .arg(subject("Good for this caller only"))
    .arg(value("ttl", "DURATION", "How long it lives, 1s to 24h [default: token_ttl]"))
    .arg(value("count", "COUNT", "How many, up to 1000").default_value("1"));
    let inspect = named(
        "inspect",
        "Say everything that can be said of a token, and use nothing up",
        "",
        "onceward token inspect - < token.txt",
    )
    .arg(which())
    .arg(action("The action it is bound to, without which its signature cannot be checked"))
    .arg(subject("The caller it is bound to"));
    let revoke = named("revoke", "Take a token out of use", "", "onceward token revoke - < token.txt").arg(which());
    let commands = [issue, inspect, revoke].map(|command| with_settings(command, &FOR_THE_STORE));
    Command::new("token")
        .about("Handle tokens: issue, inspect, revoke")
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
        "Make the tables of Onceward in a database",
        "Makes what is missing in the database of `store`, updates tables of an earlier version, and changes nothing where all is there; it can be run as often as you like, also \
         while the service runs. The tables hold what the service keeps, and what applications claim in their own transactions. Redis and \
         memory need none of it.",
        "onceward migrate --store postgres://shop@127.0.0.1/shop\n  onceward migrate --store sqlite:/var/lib/onceward.db\n  \
         onceward migrate --store postgres://shop@127.0.0.1/shop --print-sql > migrations/onceward.sql",
    );
    with_settings(command.arg(print), &FOR_THE_STORE)
}

fn config() -> Command {
    let init = named(
        "init",
        "Print a file with every setting, its default and what it does",
        "",
        "onceward config init > onceward.toml",
    );
    let schema = named(
        "schema",
        "Print the JSON Schema of that file, for editors",
        "",
        "onceward config schema > onceward.schema.json",
    );
    Command::new("config")
        .about("Print a file with settings, or its schema: init, schema")
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
        "Print completions for bash, fish or zsh",
        "",
        "onceward completions bash > /etc/bash_completion.d/onceward\n  onceward completions zsh > ~/.zfunc/_onceward\n  \
         onceward completions fish > ~/.config/fish/completions/onceward.fish",
    )
    .arg(shell)
}

/// A command with its help. Each has an example, and says it for programs if it is asked to.
fn named(name: &'static str, about: &'static str, more: &'static str, example: &str) -> Command {
    let command = Command::new(name)
        .about(about)
        .after_help(format!("Example:\n  {example}"))
        .arg(switch("json", "Say it as JSON, for programs"));
    if more.is_empty() { command } else { command.long_about(format!("{about}.\n\n{more}")) }
}

/// All settings, most of which its help does not repeat.
fn with_settings(command: Command, shown: &[&str]) -> Command {
    let example = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let flags = flags().map(|flag| {
        let is_shown = shown.contains(&flag.get_id().as_str());
        flag.help_heading("Settings").hide_short_help(false).hide(!is_shown)
    });
    command.args(flags).after_help(format!(
        "{example}\n\nIt takes the same settings as the service, from flags, environment and file: `onceward --help`."
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

    /// Every command there is, with the way to it.
    fn all(command: Command, way: &str) -> Vec<(String, Command)> {
        let way = format!("{way} {}", command.get_name()).trim().to_owned();
        let below = command.get_subcommands().cloned().flat_map(|below| all(below, &way)).collect::<Vec<_>>();
        [(way, command)].into_iter().chain(below).collect()
    }

    #[test]
    fn the_command_line_holds_together() {
        command().debug_assert();
    }

    #[test]
    fn every_command_is_listed_explained_and_has_an_example() {
        let (listed, command) = (groups(&command().get_subcommands().cloned().collect::<Vec<_>>()), command());
        for below in command.get_subcommands() {
            assert!(listed.contains(&format!("\n  {} ", below.get_name())), "{} is not in\n{listed}", below.get_name());
        }
        for (way, mut command) in all(command, "").into_iter().skip(1) {
            assert!(command.get_about().is_some(), "{way}");
            let help = command.render_long_help().to_string();
            assert!(
                help.contains("Example")
                    && (help.contains("--json") || command.has_subcommands() || way.ends_with("serve")),
                "{way}:\n{help}"
            );
        }
    }
}
