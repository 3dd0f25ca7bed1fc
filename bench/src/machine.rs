//! The line that each report starts with: the machine, the compiler and the stores.

use std::process::Command;

/// Describes the machine, the compiler, and the stores with these versions.
pub(crate) fn line(stores: &[String]) -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").ok().and_then(|info| cpu_model(&info));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok();
    let parts = [
        cpu.unwrap_or_else(|| "unknown CPU".to_owned()),
        format!("{cores} cores"),
        format!("Linux {}", kernel.as_deref().map_or("unknown", str::trim)),
        rustc().unwrap_or_else(|| "unknown rustc".to_owned()),
    ];
    parts.iter().chain(stores).map(String::as_str).collect::<Vec<_>>().join("; ")
}

/// Parses the first model name in `/proc/cpuinfo`.
fn cpu_model(info: &str) -> Option<String> {
    let line = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    Some(line?.1.trim().to_owned())
}

/// The version of the installed compiler, without the commit.
fn rustc() -> Option<String> {
    let output = Command::new("rustc").arg("--version").output().ok()?;
    let said = String::from_utf8(output.stdout).ok()?;
    let words: Vec<_> = said.split_whitespace().take(2).collect();
    (words.len() == 2).then(|| words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_is_that_of_the_first_cpu() {
        let info =
            "processor\t: 0\nmodel\t\t: 85\nmodel name\t: Some CPU @ 2.60GHz\nprocessor\t: 1\nmodel name\t: Other\n";
        assert_eq!(cpu_model(info).as_deref(), Some("Some CPU @ 2.60GHz"));
        assert_eq!(cpu_model("processor\t: 0\n"), None);
    }

    #[test]
    fn line_ends_with_the_stores() {
        let line = line(&["Redis 7.0.15".to_owned(), "SQLite 3.50.1".to_owned()]);
        assert!(line.ends_with("; Redis 7.0.15; SQLite 3.50.1") && line.contains(" cores; Linux "), "{line}");
        assert_eq!(line.lines().count(), 1);
    }
}
