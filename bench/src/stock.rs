//! Tokens for a load to send, one file for each of its threads.

use std::path::Path;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use onceward::{Binding, Guard};

use crate::Failure;
use crate::load::THREADS;

/// How many are asked for at the same time.
const AT_ONCE: usize = 256;

/// Issues this many tokens for each thread, one on each line.
pub(crate) async fn fill(guard: &Guard, folder: &Path, per_thread: usize) -> Result<(), Failure> {
    for thread in 0..THREADS {
        std::fs::write(folder.join(thread.to_string()), issue(guard, per_thread).await?)?;
    }
    Ok(())
}

async fn issue(guard: &Guard, count: usize) -> Result<String, Failure> {
    let issued = stream::repeat_with(|| guard.issue(guard.token_ttl(), Binding::none()));
    let lines = issued.take(count).buffer_unordered(AT_ONCE).try_fold(String::new(), async |mut lines, token| {
        lines.push_str(token.as_str());
        lines.push('\n');
        Ok(lines)
    });
    Ok(lines.await?)
}
