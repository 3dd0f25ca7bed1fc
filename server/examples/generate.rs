//! Writes `openapi/openapi.json` and the README's table of settings: `make generate`.

use std::io;

use onceward_server::generated_files::{openapi, readme};

fn main() -> io::Result<()> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    std::fs::write(format!("{root}/openapi/openapi.json"), openapi())?;
    let path = format!("{root}/README.md");
    let text = readme(&std::fs::read_to_string(&path)?)
        .ok_or_else(|| io::Error::other("README.md has no marks for the settings"))?;
    std::fs::write(path, text)
}
