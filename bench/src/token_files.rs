//! The files with the tokens of a load, one per thread.

use std::path::Path;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use onceward::{Binding, Guard};

use crate::Failure;
use crate::wrk::THREADS;

/// Maximum number of token requests in flight.
const MAX_IN_FLIGHT: usize = 256;

/// Issues this many tokens per thread, one per line.
pub(crate) async fn write(guard: &Guard, folder: &Path, per_thread: usize) -> Result<(), Failure> {
    for thread in 0..THREADS {
        std::fs::write(folder.join(thread.to_string()), issue(guard, per_thread).await?)?;
    }
    Ok(())
}

async fn issue(guard: &Guard, count: usize) -> Result<String, Failure> {
    let issued = stream::repeat_with(|| guard.issue(guard.token_ttl(), Binding::none()));
    let lines = issued.take(count).buffer_unordered(MAX_IN_FLIGHT).try_fold(String::new(), async |mut lines, token| {
        lines.push_str(token.as_str());
        lines.push('\n');
        Ok(lines)
    });
    Ok(lines.await?)
}
