//! Writes `openapi/openapi.json` and the generated parts of the documentation: `make generate`.

use std::{fs, io};

use onceward_server::generated_files::{PAGES, openapi};

fn main() -> io::Result<()> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    fs::write(format!("{root}/openapi/openapi.json"), openapi())?;
    for page in PAGES {
        let path = format!("{root}/{}", page.path);
        let text = page
            .update(&fs::read_to_string(&path)?)
            .ok_or_else(|| io::Error::other(format!("{} has no marks for its generated part", page.path)))?;
        fs::write(path, text)?;
    }
    Ok(())
}
